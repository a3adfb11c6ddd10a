//! The notifier: the guest of a virtual machine, or a program, learns which of its pages are paged out (`docs/notify.md`).
//!
//! That of a guest is there from the moment on when the process maps what is the guest's RAM. A page is told of as out once its frame is released, and as
//! in when its read is complete.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use outpage_core::notify::{Host, Layout};
use outpage_core::units::{PageNo, PageRange};
use outpage_sys::fd::{self, Fd};
use outpage_sys::raw::Errno;
use outpage_sys::shared::{self, Words};

use crate::config::{Config, Guest};
use crate::regions::{Region, libc_prot};
use crate::report;

mod pages;

pub(crate) use pages::Pages;

/// QEMU aligns the RAM of a guest so that it could be huge pages (`QEMU_VMALLOC_ALIGN`, 2 MiB on x86-64).
const ALIGNED: usize = 2 << 20;
/// Entries of each ring of a program's area: 16 MiB that leave between two drains, as a guest's a quarter of a GiB.
const SUBSCRIBED_ENTRIES: u32 = 1 << 12;
/// Subscriptions of a pager. Each costs every page that leaves or comes a look: a choice.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 64;
/// The byte of the file that whoever tells holds locked.
const LOCKED: u64 = 0;

/// What was told, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// As paged out.
    pub out: u64,
    /// As paged in.
    pub back: u64,
    /// Of both, those that found their ring full: the guest looks at all bits instead.
    pub lost: u64,
}

/// The area by which a program is told of `pages` pages; `None` for none, and for more than 2^31.
pub(crate) fn subscription(pages: u64) -> Option<Layout> {
    Layout::new(u32::try_from(pages).ok()?, SUBSCRIBED_ENTRIES)
}

/// Who is told.
enum Whose {
    /// A guest, of its frames; and the first page of its RAM, once that was found.
    Guest(Guest, Option<PageNo>),
    /// The program itself.
    Program(Pages),
}

impl Whose {
    /// What `page` is called.
    fn frame(&self, page: PageNo) -> Option<u32> {
        match self {
            Self::Guest(guest, first) => {
                guest.frame(page.raw().checked_sub(first.as_ref()?.raw())?)
            }
            Self::Program(pages) => pages.place(page),
        }
    }
}

/// Touches of pages that found them out of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Faults {
    /// That began a read of the store.
    pub major: u64,
    /// All others.
    pub minor: u64,
}

/// Tells a guest of its frames, once its RAM was found, or a program of its pages.
pub struct Notifier {
    whose: Whose,
    path: CString,
    telling: Option<Telling>,
    /// The file cannot be used, which was said.
    unusable: bool,
    told: Told,
    /// Of these, what was out before.
    before: Told,
    faults: Faults,
}

struct Telling {
    host: Host,
    area: Arc<Words>,
    /// Has the lock.
    file: Option<Fd>,
}

impl Notifier {
    /// As `config` says, if it does.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let (path, guest) = (config.notify.as_deref()?, config.guest?);
        Self::new(path, guest)
    }

    fn new(path: &Path, guest: Guest) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        Some(Self::with(Whose::Guest(guest, None), path, None))
    }

    /// Tells the program by `area` of `pages`. `None` where the area is too short for that.
    pub(crate) fn subscribed(area: Arc<Words>, pages: Pages) -> Option<Self> {
        let host = Host::new(&area, subscription(pages.count())?)?;
        let telling = Telling {
            host,
            area,
            file: None,
        };
        let whose = Whose::Program(pages);
        Some(Self::with(whose, CString::default(), Some(telling)))
    }

    fn with(whose: Whose, path: CString, telling: Option<Telling>) -> Self {
        Self {
            whose,
            path,
            telling,
            unusable: false,
            told: Told::default(),
            before: Told::default(),
            faults: Faults::default(),
        }
    }

    /// What was told so far was so before the program subscribed.
    pub(crate) const fn begins(&mut self) {
        self.before = self.told;
    }

    /// What was told of since.
    pub(crate) const fn since_subscribed(&self) -> Told {
        Told {
            out: self.told.out - self.before.out,
            ..self.told
        }
    }

    /// A touch of `page` found it out of the program; `reads` where it is read for that.
    pub(crate) fn faulted(&mut self, page: PageNo, reads: bool) {
        if self.knows(page) {
            self.faults.major += u64::from(reads);
            self.faults.minor += u64::from(!reads);
        }
    }

    /// Touches since the program subscribed.
    pub(crate) const fn faults(&self) -> Faults {
        self.faults
    }

    /// Whether a program is told of `page`.
    pub(crate) fn is_of(&self, page: PageNo) -> bool {
        matches!(self.whose, Whose::Program(_)) && self.knows(page)
    }

    /// Whether a program is told of a page of `range`.
    pub(crate) fn meets(&self, range: PageRange) -> bool {
        matches!(&self.whose, Whose::Program(pages) if pages.meets(range))
    }

    /// Whether it told a program that does not listen any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        let area = self.telling.as_ref().map(|telling| &telling.area);
        let alone = area.is_some_and(|area| Arc::strong_count(area) == 1);
        matches!(self.whose, Whose::Program(_)) && alone
    }

    /// The pages of `gone` are, and with them those behind them, as far as a program is told of them. False where none is left.
    pub(crate) fn loses(&mut self, gone: PageRange) -> bool {
        let Whose::Program(pages) = &mut self.whose else {
            return true;
        };
        let Some(left) = pages.first_of(gone) else {
            return true;
        };
        let last = pages.count() as u32;
        pages.cut(left);
        if let Some(Telling { host, area, .. }) = &mut self.telling {
            (left..last).for_each(|frame| {
                host.paged_in(area, frame);
            });
        }
        left > 0
    }

    /// Looks whether `region`, which is managed from now on, is the guest's RAM: as long as that is, at a multiple of 2 MiB, read-write. The
    /// first one that is it stays it.
    pub(crate) fn managed(&mut self, region: &Region) {
        let Whose::Guest(guest, _) = self.whose else {
            return;
        };
        let long = (region.end - region.start) as u64 == guest.bytes;
        let aligned = region.start.is_multiple_of(ALIGNED);
        let plain = region.prot == libc_prot::READ | libc_prot::WRITE;
        if !(long && aligned && plain) || self.telling.is_some() || self.unusable {
            return;
        }
        match self.open(guest) {
            Ok(telling) => self.telling = telling,
            Err(error) => {
                let path = self.path.to_string_lossy();
                report::say(&[
                    "outpage: cannot use ",
                    &path,
                    " to notify the guest: ",
                    error.text(),
                ]);
            }
        }
        self.unusable = self.telling.is_none();
        self.whose = Whose::Guest(guest, Some(region.first).filter(|_| !self.unusable));
    }

    fn open(&self, guest: Guest) -> Result<Option<Telling>, Errno> {
        let file = fd::open(&self.path, libc::O_RDWR | libc::O_CLOEXEC)?;
        if !shared::lock_byte(file.number(), LOCKED)? {
            let path = self.path.to_string_lossy();
            report::say(&[
                "outpage: another virtual machine is notified by ",
                &path,
                ": this one is not",
            ]);
            return Ok(None);
        }
        let layout = guest.layout();
        let area = shared::map_words(file.number(), layout.words())?;
        let host = Host::new(&area, layout);
        Ok(host.map(|host| Telling {
            host,
            area: Arc::new(area),
            file: Some(file),
        }))
    }

    /// Whether `page` is one that the guest, or the program, is told of.
    pub(crate) fn knows(&self, page: PageNo) -> bool {
        self.whose.frame(page).is_some()
    }

    /// The frame of `page` was released: its bytes are in the store alone, or compressed.
    pub(crate) fn paged_out(&mut self, page: PageNo) {
        self.tell(page, true);
    }

    /// `page` has a frame again.
    pub(crate) fn paged_in(&mut self, page: PageNo) {
        self.tell(page, false);
    }

    fn tell(&mut self, page: PageNo, out: bool) {
        let Some(frame) = self.whose.frame(page) else {
            return;
        };
        let Some(Telling { host, area, .. }) = &mut self.telling else {
            return;
        };
        let before = host.lost();
        if out {
            self.told.out += u64::from(host.paged_out(area, frame));
        } else {
            self.told.back += u64::from(host.paged_in(area, frame));
        }
        self.told.lost += u64::from(host.lost().wrapping_sub(before));
    }

    /// The area by which it tells, if there is one.
    pub(crate) fn area(&self) -> Option<&[AtomicU32]> {
        self.telling.as_ref().map(|telling| &**telling.area)
    }

    /// What all of them told so far.
    pub(crate) fn told(all: &[Self]) -> Told {
        let add = |a: Told, b: &Self| Told {
            out: a.out + b.told.out,
            back: a.back + b.told.back,
            lost: a.lost + b.told.lost,
        };
        all.iter().fold(Told::default(), add)
    }

    /// In a forked child: the guest is the parent's.
    pub(crate) fn forget_parent(mut self) {
        // The number is one of the parent's table.
        let _ = self
            .telling
            .take()
            .and_then(|telling| telling.file)
            .map(Fd::release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::notify::Guest as End;
    use outpage_core::units::{PAGE_SHIFT, PageNo};
    use std::collections::BTreeMap;

    /// 2 MiB, with the firmware's hole in it.
    const RAM: usize = 2 << 20;
    const START: usize = 1 << 40;

    fn region(start: usize, bytes: usize, prot: i32) -> Region {
        let mut regions = crate::regions::Regions::new();
        regions.add(start, start + bytes, prot, false)
    }

    fn ram() -> Region {
        region(START, RAM, libc_prot::READ | libc_prot::WRITE)
    }

    fn guest() -> Guest {
        Guest::new(RAM as u64, crate::config::Machine::Pc).expect("a guest")
    }

    fn notifier(file: &std::path::Path) -> Notifier {
        Notifier::new(file, guest()).expect("a path")
    }

    fn page(of: &Region, n: u64) -> PageNo {
        PageNo::from_raw(of.first.raw() + n)
    }

    fn made() -> (tempfile::NamedTempFile, Notifier) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let notifier = notifier(file.path());
        file.as_file()
            .set_len(guest().file_bytes())
            .expect("its length");
        (file, notifier)
    }

    fn seen(file: &tempfile::NamedTempFile) -> BTreeMap<u32, bool> {
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file.as_file());
        let area = shared::map_words(descriptor, guest().layout().words()).expect("the area");
        let mut guest = End::attach(&area).expect("an area that was made");
        let mut seen = BTreeMap::new();
        let _ = guest.drain(&area, |frame, out| {
            seen.insert(frame, out);
        });
        seen
    }

    #[test]
    fn what_leaves_and_comes_is_told_by_its_guest_frame() {
        let (file, mut notifier) = made();
        let ram = ram();
        notifier.managed(&ram);
        for n in [3, 0x9f, 0xa0, 0xff, 0x100, 511, 512] {
            notifier.paged_out(page(&ram, n));
        }
        notifier.paged_in(page(&ram, 0x100));
        // Told already.
        notifier.paged_in(page(&ram, 0x100));
        let expect = [(3, true), (0x9f, true), (0x100, false), (511, true)];
        assert_eq!(seen(&file), BTreeMap::from(expect));
        assert_eq!((notifier.told.out, notifier.told.back), (4, 1));
    }

    #[test]
    fn only_what_is_as_the_ram_of_a_guest_is_told_of() {
        let (_file, mut notifier) = made();
        let plain = libc_prot::READ | libc_prot::WRITE;
        for other in [
            region(START, RAM + 4096, plain),
            region(START + 4096, RAM, plain),
            region(START, RAM, libc_prot::READ),
            region(START, RAM, 0),
        ] {
            notifier.managed(&other);
            assert!(!notifier.knows(page(&other, 1)), "{other:?}");
        }
        let (first, second) = (ram(), region(START << 1, RAM, plain));
        notifier.managed(&first);
        notifier.managed(&second);
        assert!(notifier.knows(page(&first, 1)) && !notifier.knows(page(&second, 1)));
        assert!(!notifier.knows(PageNo::from_raw((START as u64 >> PAGE_SHIFT) - 1)));
    }

    #[test]
    fn a_program_is_told_of_no_page_that_was_unmapped_or_lies_behind_one() {
        let range = |first, pages| PageRange::new(PageNo::from_raw(first), pages);
        let layout = subscription(50).expect("pages");
        let area = Arc::new(shared::new_words(layout.words()).expect("memory"));
        let pages = Pages::of([range(100, 50)]);
        let mut notifier = Notifier::subscribed(area.clone(), pages).expect("an area");
        let end = End::attach(&area).expect("an area that was made");
        notifier.paged_out(PageNo::from_raw(149));
        notifier.begins();
        for page in [110, 120, 99, 150] {
            notifier.paged_out(PageNo::from_raw(page));
        }
        assert_eq!(notifier.since_subscribed().out, 2);
        assert!(notifier.meets(range(90, 11)) && !notifier.meets(range(90, 10)));
        assert!(notifier.is_of(PageNo::from_raw(149)) && !notifier.is_of(PageNo::from_raw(150)));
        assert!(notifier.loses(range(150, 5)) && notifier.loses(range(115, 5)));
        assert!(end.is_out(&area, 10) && !end.is_out(&area, 20) && !end.is_out(&area, 49));
        notifier.paged_out(PageNo::from_raw(121));
        assert!(!end.is_out(&area, 21) && !notifier.knows(PageNo::from_raw(115)));
        assert_eq!(
            notifier.since_subscribed(),
            Told {
                out: 2,
                back: 0,
                lost: 0
            }
        );
        assert!(!notifier.is_forgotten());
        drop(area);
        assert!(notifier.is_forgotten());
        assert!(!notifier.loses(range(0, 101)), "its first page is gone");
    }

    #[test]
    fn one_machine_has_the_file() {
        let (file, mut one) = made();
        let mut other = notifier(file.path());
        one.managed(&ram());
        other.managed(&ram());
        assert!(one.knows(page(&ram(), 1)) && !other.knows(page(&ram(), 1)));
    }

    #[test]
    fn a_file_that_is_too_short_or_missing_tells_nobody() {
        let (file, mut notifier) = made();
        file.as_file().set_len(4096).expect("its length");
        notifier.managed(&ram());
        assert!(!notifier.knows(page(&ram(), 1)));
        let mut none = super::tests::notifier(std::path::Path::new("/nowhere/at-all"));
        none.managed(&ram());
        none.paged_out(page(&ram(), 1));
        assert_eq!(none.told, Told::default());
    }
}
