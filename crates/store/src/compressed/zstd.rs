//! Zstandard in memory of the caller's: its contexts are made once, and nothing allocates after that.

#![allow(unsafe_code)] // a library in C, with memory of ours

use std::ffi::c_void;

use outpage_core::units::PAGE_BYTES;
use zstd_sys::{ZSTD_CCtx, ZSTD_DCtx, ZSTD_cParameter, ZSTD_compressionParameters};

/// The fastest of the usual ones: a page at level 3 takes half as long again and comes out 2 % smaller.
const LEVEL: i32 = 1;

/// Contexts for pages, each at the beginning of its memory.
pub(super) struct Zstd {
    compressor: Box<[u64]>,
    decompressor: Box<[u64]>,
}

impl Zstd {
    /// Both, in memory of about 100 and 160 KiB.
    ///
    /// # Panics
    /// When the library refuses the size that it estimated itself.
    pub(super) fn new() -> Self {
        let mut zstd = Self {
            compressor: room(compressor_bytes()),
            decompressor: room(decompressor_bytes()),
        };
        let bytes = |room: &[u64]| size_of_val(room);
        let (made, read) = (bytes(&zstd.compressor), bytes(&zstd.decompressor));
        // SAFETY: both are of the sizes that are told, aligned to 8 bytes, and stay where they are as long as `zstd`.
        let contexts = unsafe {
            (
                zstd_sys::ZSTD_initStaticCCtx(zstd.compressor.as_mut_ptr().cast(), made),
                zstd_sys::ZSTD_initStaticDCtx(zstd.decompressor.as_mut_ptr().cast(), read),
            )
        };
        assert_eq!(
            contexts,
            (zstd.compressing(), zstd.decompressing()),
            "a context begins where its memory does"
        );
        // Every frame is of a page: its size need not be said.
        zstd.set(ZSTD_cParameter::ZSTD_c_compressionLevel, LEVEL);
        zstd.set(ZSTD_cParameter::ZSTD_c_contentSizeFlag, 0);
        zstd
    }

    fn compressing(&mut self) -> *mut ZSTD_CCtx {
        self.compressor.as_mut_ptr().cast()
    }

    fn decompressing(&mut self) -> *mut ZSTD_DCtx {
        self.decompressor.as_mut_ptr().cast()
    }

    fn set(&mut self, parameter: ZSTD_cParameter, value: i32) {
        // SAFETY: a context that was made.
        let set = unsafe { zstd_sys::ZSTD_CCtx_setParameter(self.compressing(), parameter, value) };
        assert!(said(set).is_some(), "a parameter of the library's");
    }

    /// Bytes that the page comes to in `to`; `None` when it has not so much room.
    pub(super) fn compress(&mut self, page: &[u8; PAGE_BYTES], to: &mut [u8]) -> Option<usize> {
        let (room, most) = (to.as_mut_ptr().cast::<c_void>(), to.len());
        // SAFETY: a context that was made, and two pieces of memory with their sizes.
        said(unsafe {
            let page = page.as_ptr().cast();
            zstd_sys::ZSTD_compress2(self.compressing(), room, most, page, PAGE_BYTES)
        })
    }

    /// Whether `bytes` are a whole page, which is in `page` then.
    pub(super) fn decompress(&mut self, bytes: &[u8], page: &mut [u8; PAGE_BYTES]) -> bool {
        // SAFETY: a context that was made, and two pieces of memory with their sizes.
        let made = unsafe {
            let (page, bytes, len) = (page.as_mut_ptr(), bytes.as_ptr(), bytes.len());
            zstd_sys::ZSTD_decompressDCtx(
                self.decompressing(),
                page.cast(),
                PAGE_BYTES,
                bytes.cast(),
                len,
            )
        };
        said(made) == Some(PAGE_BYTES)
    }

    /// Bytes of memory that both have.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.compressor) + size_of_val(&*self.decompressor)
    }
}

/// A size, where it is no error.
fn said(size: usize) -> Option<usize> {
    // SAFETY: looks at the number alone.
    (unsafe { zstd_sys::ZSTD_isError(size) } == 0).then_some(size)
}

fn parameters() -> ZSTD_compressionParameters {
    // SAFETY: computes.
    unsafe { zstd_sys::ZSTD_getCParams(LEVEL, PAGE_BYTES as u64, 0) }
}

fn compressor_bytes() -> usize {
    // SAFETY: computes.
    unsafe { zstd_sys::ZSTD_estimateCCtxSize_usingCParams(parameters()) }
}

fn decompressor_bytes() -> usize {
    // SAFETY: computes.
    unsafe { zstd_sys::ZSTD_estimateDCtxSize() }
}

fn room(bytes: usize) -> Box<[u64]> {
    vec![0; bytes.div_ceil(size_of::<u64>())].into_boxed_slice()
}
