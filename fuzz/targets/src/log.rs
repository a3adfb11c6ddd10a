//! Event logs: read, replayed, and made here so that every entry is sealed and much of it makes sense.

use outpage_core::contract::{
    Access, Action, ActionId, Advice, Event, IoFailure, Outcome, PageOutcome, Refusal, Source,
    Waiter,
};
use outpage_core::page::ContentHash;
use outpage_core::pager::Pager;
use outpage_core::readahead::Choice;
use outpage_core::record::{Branch, Header, Logged, Reader, Recorder, replay};
use outpage_core::settings::{Allowed, Setting};
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};
use outpage_core::{discard, pageout, readahead, reclaim, slots};

use crate::cursor::Cursor;

/// A log as it is, or one made of choices.
pub fn log(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    if kind == b'O' {
        return read(data);
    }
    let mut maker = Maker::new(Cursor(rest));
    let sound = maker.make();
    let mut bytes = maker.log;
    maker.recorder.end(&mut bytes);
    let setup = Reader::new(&bytes).expect("just written").header().setup();
    let replayed = replay(&bytes, setup.expect("as it was made"));
    assert_eq!(replayed.is_ok(), sound, "{replayed:?}");
    read(&bytes);
}

/// Every entry of a log, and the same again by a pager of the same make.
fn read(bytes: &[u8]) {
    if let Err(unreadable) = Branch::read(bytes) {
        assert!(!unreadable.to_string().is_empty());
    }
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(unreadable) => return assert!(!unreadable.to_string().is_empty()),
    };
    let setup = reader.header().setup();
    let mut before = 0;
    while let Ok(Some(entry)) = reader.next_entry() {
        let (Logged::Event { .. } | Logged::Action { .. }) = entry;
        assert!(reader.offset() > before && reader.offset() <= bytes.len());
        before = reader.offset();
    }
    if let Some(setup) = setup
        && let Err(unequal) = replay(bytes, setup)
    {
        assert!(!unequal.to_string().is_empty());
    }
}

/// Pages that faults are about: few, so that they meet.
const PAGES: u64 = 2048;

/// Makes a log, beside a pager that does what it says.
struct Maker<'a> {
    choices: Cursor<'a>,
    pager: Pager,
    recorder: Recorder,
    log: Vec<u8>,
    now: u64,
    /// Unanswered actions, by id.
    open: Vec<(ActionId, Action)>,
}

/// The policy with one setting of its own, if it can be had like that.
fn set(entry: &'static readahead::Entry, which: u8, number: u64) -> Choice {
    let plain = Choice::ungoverned(entry);
    let set = |setting: &Setting| {
        let value = match setting.allowed {
            Allowed::Numbers(..) => number.to_string(),
            Allowed::Words(words) => words[number as usize % words.len()].to_owned(),
        };
        let set = plain.with(&format!("{}={value}", setting.name)).ok()?;
        set.check().is_ok().then_some(set)
    };
    let setting = entry.settings.iter().cycle().nth(which.into());
    setting.and_then(|setting| set(setting)).unwrap_or(plain)
}

impl<'a> Maker<'a> {
    fn new(mut choices: Cursor<'a>) -> Self {
        let pageout = pick(pageout::REGISTRY, choices.byte());
        let readahead = pick(readahead::REGISTRY, choices.byte());
        let mut pageout_params = pageout.params();
        pageout_params.buffer_pages = 1 + u32::from(choices.byte());
        let readahead = set(readahead, choices.byte(), choices.number()).to_string();
        let header = Header {
            reclaim: reclaim::REGISTRY[0].name,
            pageout: pageout.name,
            pageout_params,
            readahead: &readahead,
            slots: pick(slots::REGISTRY, choices.byte()).name,
            tier: "none",
            discard: pick(discard::REGISTRY, choices.byte()).name,
            frames: 256 + choices.number() % 1024,
            measured: choices.number() as u32,
            slots_max: 1 << (8 + choices.byte() % 8),
            zero_around: u32::from(choices.byte()),
            rescue_around: choices.number() as u32,
        };
        let mut log = Vec::new();
        let recorder = Recorder::begin(&header, &mut log);
        Self {
            pager: Pager::new(header.setup().expect("all are known")),
            recorder,
            log,
            choices,
            now: 0,
            open: Vec::new(),
        }
    }

    /// Makes the log; whether all of it makes sense.
    fn make(&mut self) -> bool {
        for _ in 0..512 {
            if self.choices.is_empty() {
                break;
            }
            if !self.step() {
                return false;
            }
        }
        true
    }

    fn step(&mut self) -> bool {
        let what = self.choices.byte();
        if what & 0x80 == 0 || self.open.is_empty() {
            let event = self.event(what);
            return self.tell(event);
        }
        let at = what as usize % self.open.len();
        let action = self.open[at].1.clone();
        let id = self.open[at].0;
        let mut answer = Answer::default();
        answer.fill(&action, &mut self.choices);
        let stranger = self.choices.byte() == 0xff;
        let id = if stranger {
            ActionId(self.choices.number() as u32)
        } else {
            id
        };
        self.tell(Event::Done {
            id,
            outcome: answer.outcome(),
        })
    }

    fn event(&mut self, what: u8) -> Event<'static> {
        match what & 15 {
            0 => Event::Adopt(self.range()),
            1 => Event::Unmap(self.range()),
            2 => Event::Discard(self.range()),
            3 => Event::Grown(self.slots()),
            4 if what & 16 == 0 => Event::Full,
            4 => Event::Left(Waiter(u32::from(what >> 5))),
            5 => {
                let least = if what & 64 == 0 { 256 } else { 0 };
                Event::Limit((self.choices.number() as usize).saturating_add(least))
            }
            6 => Event::Forking,
            7 => Event::Forked,
            8 => Event::ChildrenGone,
            9 => Event::Tick,
            10 => Event::Timer,
            11 => Event::Discardable(self.range()),
            12 => Event::TakeBack(self.range()),
            13 => Event::Flush(self.range()),
            14 if what & 16 == 0 => Event::Freeing(self.range()),
            14 if what & 32 == 0 => Event::Freed(self.range()),
            14 => {
                let advice = Advice::ALL[self.choices.byte() as usize % Advice::ALL.len()];
                Event::Advise(advice, self.range())
            }
            _ => {
                let page = self.page();
                Event::Fault {
                    page,
                    access: if what & 16 == 0 {
                        Access::Read
                    } else {
                        Access::Write
                    },
                    waiter: Waiter(u32::from(what >> 5)),
                    source: Source(u32::from(what >> 6)),
                    extent: if what & 32 == 0 {
                        PageRange::new(PageNo::new(ObjectId(1), 0), PAGES)
                    } else {
                        self.range()
                    },
                }
            }
        }
    }

    fn page(&mut self) -> PageNo {
        match self.choices.byte() {
            0xff => PageNo::from_raw(self.choices.word()),
            high => PageNo::new(
                ObjectId(1),
                (u64::from(high) << 8 | u64::from(self.choices.byte())) % PAGES,
            ),
        }
    }

    /// What a log can hold: a range with an end, whose first page has one too.
    fn range(&mut self) -> PageRange {
        let (start, pages) = (self.page(), self.choices.number());
        let held = PageRange::checked(start, 1).and(PageRange::checked(start, pages));
        held.unwrap_or(PageRange::new(PageNo::from_raw(0), pages))
    }

    fn slots(&mut self) -> SlotRange {
        let start = SlotNo(self.choices.number() as u32);
        SlotRange::new(start, self.choices.number() as u32)
    }

    /// Writes the event down, and tells the pager if it may come.
    fn tell(&mut self, event: Event<'_>) -> bool {
        self.now += u64::from(self.choices.byte());
        self.recorder.event(Nanos(self.now), &event, &mut self.log);
        if let Event::Done { id, .. } = event {
            let Some(at) = self.open.iter().position(|open| open.0 == id) else {
                return false;
            };
            self.open.swap_remove(at);
        }
        // What no body says, and a reader refuses.
        let unheard = match event {
            Event::Adopt(range) => range.pages > 4096,
            Event::Fault { page, .. } => page.raw() == u64::MAX,
            Event::Limit(frames) => frames > 1 << 48,
            _ => false,
        };
        if unheard || !self.pager.admits(&event) {
            return false;
        }
        self.pager.handle(Nanos(self.now), event);
        while let Some(action) = self.pager.poll_action() {
            self.write(action);
        }
        true
    }

    fn write(&mut self, action: Action) {
        self.recorder.action(&action, &mut self.log);
        if let Some(id) = action.id() {
            self.open.push((id, action));
        }
    }
}

fn pick<T>(list: &'static [T], choice: u8) -> &'static T {
    &list[choice as usize % list.len()]
}

/// An answer to an action, of its kind as a rule.
#[derive(Default)]
struct Answer {
    kind: u8,
    pages: Vec<PageOutcome>,
}

impl Answer {
    fn fill(&mut self, action: &Action, choices: &mut Cursor<'_>) {
        let pages = action.pages().len();
        let wild = choices.byte();
        let (kind, count) = match action {
            Action::ZeroFill { run, .. } | Action::Map { run, .. } | Action::Drop { run, .. } => {
                (0, run.pages)
            }
            Action::Detach { run, .. } => (1, run.pages),
            Action::PageIn { .. } if wild & 1 == 0 => (2, pages as u64),
            _ => (3, pages as u64),
        };
        self.kind = if wild == 0xff {
            choices.byte() % 6
        } else {
            kind
        };
        if self.kind == 3 && wild & 0xf0 == 0xf0 {
            self.kind += 1 + (wild & 1);
        }
        let count = if wild == 0xfe {
            choices.number() % 512
        } else {
            count
        };
        let wrong = choices.byte() == 0xff;
        for _ in 0..count {
            let choice = choices.byte();
            self.pages.push(one(self.kind, choice));
        }
        if wrong && let Some(page) = self.pages.first_mut() {
            *page = *pick(&WRONG, choices.byte());
        }
    }

    fn outcome(&self) -> Outcome<'_> {
        match self.kind {
            0..=2 => Outcome::Pages(&self.pages),
            3 => Outcome::Done,
            4 => Outcome::Failed(IoFailure::Device),
            _ => Outcome::Failed(IoFailure::NoSpace),
        }
    }
}

/// Of these some answer no action, and others not this one.
static WRONG: [PageOutcome; 5] = [
    PageOutcome::Done,
    PageOutcome::Unhashed,
    PageOutcome::Refused(Refusal::Damaged),
    PageOutcome::Refused(Refusal::Busy),
    PageOutcome::Detached {
        hash: ContentHash([0; 3]),
        zero: false,
    },
];

/// An outcome that such an action can have.
fn one(kind: u8, choice: u8) -> PageOutcome {
    match choice & 31 {
        6 if kind == 2 => PageOutcome::Refused(Refusal::Damaged),
        _ if kind == 2 => PageOutcome::Done,
        1 => PageOutcome::Refused(Refusal::Busy),
        2 => PageOutcome::Refused(Refusal::Absent),
        3 => PageOutcome::Refused(Refusal::Present),
        4 => PageOutcome::Refused(Refusal::Gone),
        _ if kind == 1 => PageOutcome::Detached {
            hash: ContentHash([u32::from(choice >> 6), 0, 0]),
            zero: choice & 32 != 0,
        },
        _ => PageOutcome::Done,
    }
}
