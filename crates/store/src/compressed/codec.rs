//! What makes a page smaller.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};
use outpage_core::units::PAGE_BYTES;

use super::zstd::Zstd;

/// How pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Codec {
    /// LZ4 blocks.
    Lz4,
    /// Zstandard frames, level 1: half to two thirds of the size, in three times the time.
    Zstd,
}

impl Codec {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Lz4, Self::Zstd];

    /// As people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|codec| codec.name() == name)
    }
}

// Of `lz4_flex` the encoder has no bounds checks (no `safe-encode`), a fifth faster: it is given pages of the pager's own and the room that
// it asks for. The decoder has them (`safe-decode`): without them it is no faster, and its bytes may be damaged.

/// Room for what a codec makes of a page that it makes larger.
const BUFFER_BYTES: usize = lz4_flex::block::get_maximum_output_size(PAGE_BYTES);

/// A codec with all the memory that it needs.
pub(super) struct Coder {
    engine: Engine,
    buffer: Vec<u8>,
}

enum Engine {
    Lz4(CompressTable),
    Zstd(Zstd),
}

impl Coder {
    pub(super) fn new(codec: Codec) -> Self {
        Self {
            engine: match codec {
                Codec::Lz4 => Engine::Lz4(CompressTable::small()),
                Codec::Zstd => Engine::Zstd(Zstd::new()),
            },
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Bytes that the codec makes of the page, which are [`Coder::made`] then; `None` when they are more than `most`.
    pub(super) fn compress(&mut self, page: &[u8; PAGE_BYTES], most: usize) -> Option<usize> {
        let bytes = match &mut self.engine {
            Engine::Lz4(table) => compress_into_with_table(page, &mut self.buffer, table).ok()?,
            Engine::Zstd(zstd) => zstd.compress(page, &mut self.buffer)?,
        };
        (bytes <= most).then_some(bytes)
    }

    /// The first `len` bytes of what it made last.
    pub(super) fn made(&self, len: usize) -> &[u8] {
        &self.buffer[..len]
    }

    /// Whether `bytes` are a whole page, which is in `page` then.
    pub(super) fn decompress(&mut self, bytes: &[u8], page: &mut [u8; PAGE_BYTES]) -> bool {
        match &mut self.engine {
            Engine::Lz4(_) => decompress_into(bytes, page).is_ok_and(|bytes| bytes == PAGE_BYTES),
            Engine::Zstd(zstd) => zstd.decompress(bytes, page),
        }
    }

    /// Bytes of memory that the codec has, where that is more than a few frames.
    pub(super) fn bytes(&self) -> usize {
        match &self.engine {
            Engine::Lz4(_) => 0,
            Engine::Zstd(zstd) => zstd.bytes(),
        }
    }
}
