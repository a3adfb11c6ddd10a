//! What read-ahead did for each memory object, for people and as JSON.

use outpage_core::swap_cache::SwapCache;
use outpage_core::units::PAGE_BYTES;
use outpage_stats::{ObjectUse, ObjectUses};
use serde_json::{Map, Value, json};

use super::rates::{percents, rates_json};
use super::{grouped, pages_size};

/// Objects in the JSON, those that most was read of; the rest is summed. More than the mappings that
/// matter in the programs of tests/programs.
pub const LISTED_MAX: usize = 16;
/// Of these, so many in the summary.
const SUMMARY_MAX: usize = 3;

/// The largest objects, one behind the other; nothing when there is one only.
pub fn text(uses: &ObjectUses) -> String {
    if uses.largest.len() < 2 {
        return String::new();
    }
    let one = |object: &ObjectUse| {
        let (from, pages) = (address(object), pages(object));
        let read = grouped(object.counts.page_ins);
        let percents = percents(&object.counts);
        format!("{from} ({}) {read} pages read{percents}", pages_size(pages))
    };
    let texts: Vec<_> = uses.largest.iter().take(SUMMARY_MAX).map(one).collect();
    texts.join("\n              ")
}

/// An array of the largest objects, and the sum of the others.
pub fn json(uses: &ObjectUses) -> Value {
    let one = |object: &ObjectUse| {
        let mut map = counts(&object.counts);
        map.insert("pid".into(), json!(object.pid));
        map.insert("address".into(), json!(address(object)));
        map.insert("bytes".into(), json!(pages(object) * PAGE_BYTES as u64));
        Value::Object(map)
    };
    let largest: Vec<Value> = uses.largest.iter().map(one).collect();
    json!({"largest": largest, "others": counts(&uses.others)})
}

/// The address of the first page that was read, in hexadecimal.
fn address(object: &ObjectUse) -> String {
    format!("{:#x}", object.first.index() * PAGE_BYTES as u64)
}

/// Pages from the first that was read to the last. Rows are read while processes may still write
/// them, so the two may be of different objects.
fn pages(object: &ObjectUse) -> u64 {
    object.last.index().saturating_sub(object.first.index()) + 1
}

fn counts(c: &SwapCache) -> Map<String, Value> {
    let numbers = [
        ("major_faults", c.major_faults),
        ("page_ins", c.page_ins),
        ("read_ahead_pages", c.read_ahead),
        ("read_ahead_mapped", c.mapped),
        ("read_ahead_hits", c.hits),
        ("read_ahead_late", c.late),
        ("read_ahead_waste", c.waste),
    ];
    let numbers = numbers.map(|(name, number)| (name.to_owned(), json!(number)));
    numbers.into_iter().chain(rates_json(c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::units::{ObjectId, PageNo};

    fn object(index: u64, page_ins: u64) -> ObjectUse {
        let counts = SwapCache {
            page_ins,
            read_ahead: page_ins / 2,
            hits: page_ins / 4,
            ..SwapCache::ZERO
        };
        let page = |index| PageNo::new(ObjectId(3), index);
        ObjectUse {
            pid: 7,
            first: page(index),
            last: page(index + 255),
            counts,
        }
    }

    #[test]
    fn objects_have_their_place_and_their_rates() {
        let uses = ObjectUses {
            largest: vec![object(16, 2000), object(4096, 8)],
            others: SwapCache::ZERO,
        };
        let text = text(&uses);
        assert!(
            text.starts_with("0x10000 (1 MiB) 2,000 pages read; hit rate 50 %"),
            "{text}"
        );
        let value = json(&uses);
        let first = &value["largest"][0];
        assert_eq!(
            (&first["bytes"], &first["pid"]),
            (&json!(1 << 20), &json!(7))
        );
        assert_eq!(first["hit_rate"], 0.5);
        assert_eq!(value["others"]["page_ins"], 0);
        assert_eq!(value["others"]["hit_rate"], Value::Null);
    }

    #[test]
    fn one_object_is_the_program_itself() {
        let uses = ObjectUses {
            largest: vec![object(16, 2000)],
            others: SwapCache::ZERO,
        };
        assert_eq!(super::text(&uses), "");
    }
}
