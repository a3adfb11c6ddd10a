//! What a server is told.

use std::path::PathBuf;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{DEFAULT_SWAP_DIR, StoreKind};
use outpage_wire::MINIMUM_PAGES;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// RAM for the pages of all clients, in pages.
    pub limit_pages: u64,
    /// Directory of the swap file.
    pub swap_dir: PathBuf,
    /// Most that the swap file may hold, in bytes.
    pub swap_cap: u64,
    /// Who does its I/O.
    pub store: StoreKind,
    /// When discardable pages are dropped: a name of `outpage_core::discard::REGISTRY`, with settings.
    pub discard: String,
    /// Which pages leave: a name of `outpage_core::reclaim::REGISTRY`, with settings.
    pub reclaim: String,
    /// What else is read with a page: a name of `outpage_core::readahead::REGISTRY`, with settings.
    pub readahead: String,
    /// Most clients at a time.
    pub clients_max: usize,
    /// Most pages of all objects of one client.
    pub client_pages_max: u64,
    /// Most pages that one client may be guaranteed.
    pub minimum_pages_max: u64,
}

impl Options {
    /// Clients at a time, without a setting. A choice: more than a machine has of collectors; each costs three descriptors, of the 1024 that a process has by default.
    pub const CLIENTS_MAX: usize = 256;

    /// The defaults, for a limit of so many pages: a swap file of 16 times that, 2 GiB at least, and as many pages for each client as fill it.
    #[must_use]
    pub fn new(limit_pages: u64) -> Self {
        let mut options = Self {
            limit_pages,
            swap_dir: PathBuf::from(DEFAULT_SWAP_DIR),
            swap_cap: 0,
            store: StoreKind::Auto,
            discard: "on-demand".to_owned(),
            reclaim: outpage_core::reclaim::Choice::default().to_string(),
            readahead: "stream".to_owned(),
            clients_max: Self::CLIENTS_MAX,
            client_pages_max: 0,
            minimum_pages_max: (limit_pages / 2).max(MINIMUM_PAGES),
        };
        let bytes = limit_pages.saturating_mul(PAGE_BYTES as u64);
        options.set_swap_cap(bytes.saturating_mul(16).max(2 << 30));
        options
    }

    /// The swap file may hold so many bytes, and a client have what fills it and the memory.
    pub const fn set_swap_cap(&mut self, bytes: u64) {
        self.swap_cap = bytes;
        self.client_pages_max = self.limit_pages + bytes / PAGE_BYTES as u64;
    }
}
