//! How allocators place rows of a matrix.

use outpage_core::units::{PAGE_BYTES, PageRange, pages_ceil};
use serde::{Deserialize, Serialize};

use super::run;

/// Where a program's memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// FreeBSD up to 6: what is larger than half a page gets whole pages, one behind the other on
    /// the heap (malloc(3), FreeBSD 6).
    #[default]
    Phkmalloc,
    /// One behind the other, aligned to 16 bytes, without headers: a program's own allocator on brk(2).
    Brk,
    /// glibc: 8 bytes of header a row, rounded up to 16, the first row 16 bytes into a page.
    Glibc,
    /// FreeBSD 7 and later: whole pages within chunks of 1 MiB that begin with a header; no row
    /// crosses a chunk (Evans, "A scalable concurrent malloc(3) implementation for FreeBSD", 2006).
    /// The size of the header, 2 pages, is an inference from the page map it holds.
    Jemalloc,
}

const PAGE: u64 = PAGE_BYTES as u64;
const CHUNK_PAGES: u64 = 256;
const CHUNK_HEADER_PAGES: u64 = 2;

/// Rows of a matrix, each its own allocation, in one memory object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    object: u32,
    /// The page of the object where the matrix begins.
    base: u64,
    layout: Layout,
    row_bytes: u64,
    rows: u64,
}

impl Rows {
    /// `rows` rows of `row_bytes` bytes from page `base` of `object` on.
    ///
    /// # Panics
    /// When a jemalloc row does not fit a chunk.
    #[must_use]
    pub fn new(layout: Layout, object: u32, base: u64, rows: u64, row_bytes: u64) -> Self {
        let fits = pages_ceil(row_bytes) <= CHUNK_PAGES - CHUNK_HEADER_PAGES;
        assert!(
            layout != Layout::Jemalloc || fits,
            "a row of {row_bytes} bytes is larger than a chunk"
        );
        Self {
            object,
            base,
            layout,
            row_bytes,
            rows,
        }
    }

    /// First byte of row `i`, from the start of the matrix.
    fn offset(&self, i: u64) -> u64 {
        match self.layout {
            Layout::Phkmalloc => i * pages_ceil(self.row_bytes) * PAGE,
            Layout::Brk => i * self.row_bytes.next_multiple_of(16),
            Layout::Glibc => 16 + i * (self.row_bytes + 8).next_multiple_of(16),
            Layout::Jemalloc => {
                let pages = pages_ceil(self.row_bytes);
                let per_chunk = (CHUNK_PAGES - CHUNK_HEADER_PAGES) / pages;
                let (chunk, place) = (i / per_chunk, i % per_chunk);
                (chunk * CHUNK_PAGES + CHUNK_HEADER_PAGES + place * pages) * PAGE
            }
        }
    }

    /// The pages that row `i` lies on.
    #[must_use]
    pub fn row(&self, i: u64) -> PageRange {
        let start = self.offset(i);
        let (first, end) = (start / PAGE, (start + self.row_bytes).div_ceil(PAGE));
        run(self.object, self.base + first, end - first)
    }

    /// From the first page of the matrix to the last.
    #[must_use]
    pub fn span(&self) -> PageRange {
        let end = (self.offset(self.rows - 1) + self.row_bytes).div_ceil(PAGE);
        run(self.object, self.base, end)
    }

    /// Pages that rows lie on.
    #[must_use]
    pub fn touched(&self) -> u64 {
        match self.layout {
            Layout::Phkmalloc | Layout::Jemalloc => self.rows * pages_ceil(self.row_bytes),
            Layout::Brk | Layout::Glibc => self.span().pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(layout: Layout) -> Rows {
        Rows::new(layout, 1, 0, 8000, 64_000)
    }

    #[test]
    fn a_row_of_8000_doubles_takes_16_pages_under_phkmalloc() {
        let rows = rows(Layout::Phkmalloc);
        assert_eq!(rows.row(3), run(1, 48, 16));
        assert_eq!(rows.touched(), 128_000);
    }

    #[test]
    fn glibc_rows_have_a_stride_of_64016_bytes() {
        let rows = rows(Layout::Glibc);
        // Row 1 begins at byte 64,032: page 15, and ends at 128,032: page 31.
        assert_eq!(rows.row(1), run(1, 15, 17));
        // The count of a real process (`workloads`: 125,032).
        assert_eq!(rows.touched(), 125_032);
    }

    #[test]
    fn jemalloc_rows_stay_in_their_chunk() {
        let rows = rows(Layout::Jemalloc);
        // 254 pages hold 15 rows of 16; row 15 begins the second chunk.
        assert_eq!(rows.row(14), run(1, 2 + 14 * 16, 16));
        assert_eq!(rows.row(15), run(1, 256 + 2, 16));
    }

    #[test]
    fn brk_rows_touch_each_other() {
        let rows = rows(Layout::Brk);
        assert_eq!(rows.row(0), run(1, 0, 16));
        assert_eq!(rows.row(1), run(1, 15, 17));
        assert_eq!(rows.touched(), 125_000);
    }
}
