//! What is told of a counter, and where it is told.

/// How the counters of several processes become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number of events or bytes: added, also from processes that are gone.
    Sum,
    /// A present amount: added over the processes that live.
    Level,
    /// The most that there was at once in one process: the largest counts.
    Peak,
}

impl Kind {
    /// What a document says of the value for all processes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "added",
            Self::Level => "now, added over those that live",
            Self::Peak => "the most of one process",
        }
    }
}

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Pages of 4 KiB.
    Pages,
    /// Squares of numbers of pages.
    SquarePages,
    /// Requests to the swap file.
    Requests,
    /// Runs of neighbouring pages.
    Clusters,
    /// Bytes.
    Bytes,
    /// Faults of the program's threads.
    Faults,
    /// Nanoseconds.
    Nanoseconds,
    /// System calls.
    Calls,
    /// Things that happened.
    Events,
    /// Page-sized places in the swap file.
    Slots,
}

impl Unit {
    /// As documents and commands write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::SquarePages => "pages²",
            Self::Requests => "requests",
            Self::Clusters => "clusters",
            Self::Bytes => "bytes",
            Self::Faults => "faults",
            Self::Nanoseconds => "ns",
            Self::Calls => "calls",
            Self::Events => "events",
            Self::Slots => "slots",
        }
    }
}

/// A counter, as it is declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Its name in the JSON.
    pub name: &'static str,
    /// How several processes add up.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// The line of the summary that it is told in.
    pub line: Option<Line>,
    /// What the summary says behind the number where it is not 0.
    pub warning: Option<&'static str>,
    /// What it means; of a peak, behind "most".
    pub meaning: &'static str,
}

impl Definition {
    /// The meaning as a document has it.
    #[must_use]
    pub fn phrase(&self) -> String {
        match self.kind {
            Kind::Peak => format!("most {}", self.meaning),
            Kind::Sum | Kind::Level => self.meaning.to_owned(),
        }
    }
}

/// Declares the lines of the summary: what a line begins with, and what it says.
macro_rules! lines {
    ($($line:ident = $label:literal, $meaning:literal;)+) => {
        /// A line of the closing summary.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Line {
            $(#[doc = $meaning] $line,)+
        }

        /// Every line, in the order of the summary.
        pub const LINES: &[LineDefinition] = &[
            $(LineDefinition { line: Line::$line, label: $label, meaning: $meaning },)+
        ];

        impl Line {
            /// What the line begins with, indented where it belongs to the one above.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$line => $label,)+ }
            }
        }
    };
}

/// A line of the summary, as it is declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineDefinition {
    /// Which.
    pub line: Line,
    /// What it begins with; the first line begins with the program's name.
    pub label: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

lines! {
    Head = "",
        "the limit; the most of it that was lent to the processes at once; the most swap slots of any one process; the \
         mechanism, whether the swap file is encrypted, and the policies in use";
    PageOuts = "page-outs",
        "pages written to the swap file, the writes that took them, pages a write, and pages a cluster";
    BySize = "  by size",
        "writes by their number of pages";
    PageIns = "page-ins",
        "pages read from the swap file, the reads that brought them, pages a read";
    ReadAhead = "read-ahead",
        "pages read that nobody had asked for: mapped along with a touched page (a sample of them tells how many in vain), \
         touched later, evicted untouched; and the rates made of these";
    ByObject = "  by object",
        "where there are several memory objects, that is mappings: the three that most was read of, by address, with their \
         rates";
    Faults = "faults",
        "minor: without a read; major: with one; time that the program's threads waited, added over the threads, and the \
         run's elapsed time";
    Minor = "  minor",
        "how long threads waited for faults without a read: half, nine tenths, 99 % and 99.9 % took at most that long, to a \
         sixteenth. A fault on a page that is being read already counts as minor";
    Major = "  major",
        "the same for faults with a read";
    Compressed = "compressed",
        "pages kept compressed in RAM, to which part of their size, in how many frames at most; those that were touched there, those that went on to \
         the swap file, and those that hardly got smaller";
    Freed = "freed",
        "only where there were some: pages that the program freed until it writes to them (MADV_FREE); those that were dropped, and those that it had \
         written again by then";
    NotWritten = "not written",
        "evicted pages that equalled their slot or were all zero; pages that were mapped again out of a frame, those that \
         read-ahead had brought included";
    Attention = "attention",
        "only when something happened: failed requests, wrong checksums, a swap file at its cap, pages duplicated by fork, \
         processes that still run, far more read than the program touched";
    NotPaged = "not paged",
        "only where it is 1 MiB and more: what the program had in RAM at most beside the limit, by kind";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_lines() {
        for definition in LINES {
            assert_eq!(definition.line.label(), definition.label);
        }
    }
}
