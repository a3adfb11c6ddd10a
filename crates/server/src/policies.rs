//! What the pagers of clients are made of.

use outpage_core::limits::FRAMES_MIN;
use outpage_core::pager::{Pager, Setup};
use outpage_core::record::Header;
use outpage_core::{discard, pageout, readahead, reclaim};

use crate::options::Options;

/// As for a program under `outpage run` (`engine/src/start.rs`): pages that are zeroed around a first touch, and staged pages that come along with a rescue.
const ZERO_AROUND: u32 = 64;
const RESCUE_AROUND: u32 = 8;
/// How victims are grouped, and which slots they get: those of `outpage run`.
const PAGEOUT: &str = "packed";
const SLOTS: &str = "log";

/// Policies whose names were checked.
pub struct Policies {
    reclaim: String,
    readahead: readahead::Choice,
    discard: String,
    slots_max: u32,
    frames_max: usize,
}

impl Policies {
    /// Those of `options`, over a store of so many slots.
    ///
    /// # Errors
    /// One line: what cannot be had, and what can.
    pub fn new(options: &Options, slots_max: u32) -> Result<Self, String> {
        let body = outpage_core::contract::Body::default();
        discard::Choice::parse(&options.discard).map_err(|refused| refused.to_string())?;
        reclaim::Choice::parse(&options.reclaim, body).map_err(|refused| refused.to_string())?;
        let readahead = outpage_engine::config::parse_readahead(&options.readahead);
        Ok(Self {
            reclaim: options.reclaim.clone(),
            readahead: readahead?,
            discard: options.discard.clone(),
            slots_max,
            frames_max: options.limit_pages as usize,
        })
    }

    /// Most pages of one transfer.
    #[must_use]
    pub fn transfer_pages(&self) -> u32 {
        self.params().buffer_pages.max(self.readahead.max_window())
    }

    fn params(&self) -> pageout::Params {
        let entry = pageout::find(PAGEOUT).expect("a registered policy");
        pageout::Params {
            buffer_pages: entry.buffer_pages,
            window: pageout::ClusterWindow::Kernel,
        }
    }

    fn setup(&self) -> Setup {
        let readahead = self.readahead.for_frames(self.frames_max).to_string();
        let header = Header {
            reclaim: &self.reclaim,
            pageout: PAGEOUT,
            pageout_params: self.params(),
            readahead: &readahead,
            slots: SLOTS,
            tier: "none",
            discard: &self.discard,
            frames: FRAMES_MIN as u64,
            measured: FRAMES_MIN as u32,
            slots_max: self.slots_max,
            zero_around: ZERO_AROUND,
            rescue_around: RESCUE_AROUND,
        };
        header.setup().expect("names were checked")
    }

    /// A pager of the smallest limit.
    #[must_use]
    pub fn pager(&self) -> Pager {
        Pager::new(self.setup())
    }
}
