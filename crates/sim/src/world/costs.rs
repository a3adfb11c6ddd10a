//! CPU time of what a kernel and its codecs do.

use serde::{Deserialize, Serialize};

/// CPU time of what the kernel does, nanoseconds.
///
/// The defaults are guesses for a Pentium 4 of 3 GHz, within a factor of two of what lmbench-like
/// tables of the time show; none of the papers' times is sensitive to them, because the disk is
/// two orders of magnitude slower. Those of compression were measured with LZ4 on an AMD EPYC of today.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// A fault that finds its page in memory.
    pub soft_fault_ns: u32,
    /// A fault that gets a zeroed page: the trap and 4 KiB of stores.
    pub zero_fill_ns: u32,
    /// A message to an external pager and its answer: one for each page that is zero-filled, read, written, dropped or flushed. 0 where the
    /// kernel pages by itself.
    pub pager_ns: u32,
    /// Starting a transfer: driver and controller.
    pub io_ns: u32,
    /// Its interrupt and what follows.
    pub io_done_ns: u32,
    /// Compressing a page by LZ4.
    pub compress_ns: u32,
    /// Finding that a page does not compress.
    pub unfit_ns: u32,
    /// Taking a page out of the pool that LZ4 compressed.
    pub decompress_ns: u32,
    /// Compressing a page by Zstandard.
    pub zstd_compress_ns: u32,
    /// Taking a page out of the pool that Zstandard compressed.
    pub zstd_decompress_ns: u32,
}

impl Costs {
    /// Nanoseconds for compressing a page by the codec of this name, and for taking it out again.
    pub(super) fn of_codec(&self, codec: &str) -> (u32, u32) {
        match codec {
            "zstd" => (self.zstd_compress_ns, self.zstd_decompress_ns),
            _ => (self.compress_ns, self.decompress_ns),
        }
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            soft_fault_ns: 1_500,
            zero_fill_ns: 3_000,
            pager_ns: 0,
            io_ns: 10_000,
            io_done_ns: 10_000,
            // Measured: 3.5 to 5.4 us, 0.24 to 0.26 us of random pages, and 0.9 to 1.6 us.
            compress_ns: 4_000,
            unfit_ns: 250,
            decompress_ns: 1_600,
            // 5.9 to 12.2 us, and 2.2 to 4.6 us.
            zstd_compress_ns: 11_000,
            zstd_decompress_ns: 4_000,
        }
    }
}

/// What compression takes of a CPU, as it was measured there; nanoseconds a page. [`Costs`] says of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecCosts {
    /// Compressing a page by LZ4.
    pub compress_ns: u32,
    /// Finding that a page does not compress.
    pub unfit_ns: u32,
    /// Taking a page out of the pool that LZ4 compressed.
    pub decompress_ns: u32,
    /// Compressing a page by Zstandard.
    pub zstd_compress_ns: u32,
    /// Taking a page out of the pool that Zstandard compressed.
    pub zstd_decompress_ns: u32,
}

impl CodecCosts {
    /// `costs` with these in their place.
    #[must_use]
    pub const fn within(self, costs: Costs) -> Costs {
        Costs {
            compress_ns: self.compress_ns,
            unfit_ns: self.unfit_ns,
            decompress_ns: self.decompress_ns,
            zstd_compress_ns: self.zstd_compress_ns,
            zstd_decompress_ns: self.zstd_decompress_ns,
            ..costs
        }
    }
}
