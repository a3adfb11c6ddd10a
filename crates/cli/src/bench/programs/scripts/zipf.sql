-- N rows with an index in memory, then half as many look-ups, of low keys more often than of high ones,
-- every other one an update. A cube of uniform numbers stands in for Zipf's law.
PRAGMA temp_store = memory;
CREATE TABLE store (id INTEGER PRIMARY KEY, name TEXT, value TEXT, hits INTEGER DEFAULT 0);
WITH RECURSIVE i(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM i WHERE k < {n} - 1)
INSERT INTO store(id, name, value)
SELECT k, printf('key%d', k * 2654435761 % 4294967296), printf('value %d of a row, %x', k, k * 40503) FROM i;
CREATE INDEX by_name ON store(name);
CREATE TABLE want AS
WITH RECURSIVE r(j, x) AS (
  SELECT 0, 1 UNION ALL SELECT j + 1, (x * 69069 + 12345) % 4294967296 FROM r WHERE j < {n} / 2)
SELECT j, CAST({n} * (x / 4294967296.0) * (x / 4294967296.0) * (x / 4294967296.0) AS INTEGER) AS k FROM r;
SELECT count(*), sum(length(s.value)) FROM want
  JOIN store AS s ON s.name = printf('key%d', want.k * 7919 % {n} * 2654435761 % 4294967296);
UPDATE store SET hits = hits + 1 WHERE id IN (SELECT k * 7919 % {n} FROM want WHERE j % 2 = 0);
SELECT count(*), sum(hits), sum(id * hits) FROM store;
