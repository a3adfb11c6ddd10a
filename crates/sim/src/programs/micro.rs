//! The MOC paper's microbenchmark: change C pages, skip C pages, to the end of the memory.

use outpage_core::contract::Access;
use serde::{Deserialize, Serialize};

use super::{Program, Step, run};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MicroParams {
    /// Pages that are changed, and then skipped.
    pub cluster_pages: u64,
    /// Pages in all: 1.5 GB are 393,216 if GB means 2^30.
    pub pages: u64,
    /// CPU time to change a page, nanoseconds.
    pub page_ns: u32,
}

impl Default for MicroParams {
    /// 1 us a page: a few stores, or one line each; the paper does not say. The time is spent on
    /// the disk whatever this is.
    fn default() -> Self {
        Self {
            cluster_pages: 1,
            pages: 393_216,
            page_ns: 1_000,
        }
    }
}

/// The generator.
pub struct Micro {
    params: MicroParams,
    object: u32,
    at: Option<u64>,
}

impl Micro {
    /// The program in memory object `object`.
    ///
    /// # Panics
    /// With clusters of no page.
    #[must_use]
    pub fn new(params: MicroParams, object: u32) -> Self {
        assert!(params.cluster_pages > 0, "a cluster has pages");
        let at = None;
        Self { params, object, at }
    }
}

impl Program for Micro {
    fn name(&self) -> &'static str {
        "micro"
    }

    fn footprint(&self) -> u64 {
        let (c, pages) = (self.params.cluster_pages, self.params.pages);
        pages / (2 * c) * c + (pages % (2 * c)).min(c)
    }

    fn step(&mut self) -> Step {
        let (c, pages) = (self.params.cluster_pages, self.params.pages);
        let Some(at) = self.at else {
            self.at = Some(0);
            return Step::Map(run(self.object, 0, pages));
        };
        if at >= pages {
            return Step::End;
        }
        self.at = Some(at + 2 * c);
        Step::Touch {
            run: run(self.object, at, c.min(pages - at)),
            access: Access::Write,
            page_ns: self.params.page_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::testing::touches;

    #[test]
    fn every_cluster_size_changes_half_of_the_pages() {
        for (c, pages) in [(1, 196_608), (10, 196_610), (14, 196_614), (16, 196_608)] {
            let params = MicroParams {
                cluster_pages: c,
                ..MicroParams::default()
            };
            assert_eq!(touches(&mut Micro::new(params, 1)), (0, pages), "{c}");
            assert_eq!(Micro::new(params, 1).footprint(), pages, "{c}");
        }
    }
}
