//! What people may set of read-ahead policies, and what they are told when they may not.

use outpage_core::readahead::{self, Arrival, Choice, Govern, Manner, Refused};

fn choice(policy: &str, settings: &str) -> Result<Choice, Refused> {
    format!("{policy}:{settings}").parse()
}

fn refused(policy: &str, settings: &str) -> Refused {
    choice(policy, settings).unwrap_err()
}

#[test]
fn settings_are_read() {
    let text =
        "window=4, step=2,max=64,mdis=16,entries=3,key=source,placement=target,arrival=mapped";
    let asp = choice("asp", text).unwrap();
    let numbers = ["window", "step", "max", "mdis", "entries"].map(|name| asp.values().of(name));
    assert_eq!(numbers, [4, 2, 64, 16, 3]);
    assert_eq!(
        ["key", "placement"].map(|name| asp.values().of(name)),
        [2, 1]
    );
    let manner = Manner {
        arrival: Arrival::Mapped,
        demand_first: 0,
        read_max: 64,
        govern: Govern::On,
    };
    assert_eq!((asp.entry().name, asp.manner()), ("asp", manner));
    assert_eq!(Choice::ungoverned(asp.entry()).manner().govern, Govern::Off);
    for (cluster, slots) in [(0, 1), (3, 8), (5, 32)] {
        let text = format!("page-cluster={cluster}");
        for policy in ["linux-slot", "linux-vma"] {
            let linux = choice(policy, &text).unwrap();
            assert_eq!(linux.max_window(), slots);
            assert_eq!(linux.build().manner().read_max, slots);
        }
    }
}

#[test]
fn every_default_is_allowed_and_said_as_it_is_set() {
    for entry in readahead::REGISTRY {
        let plain = Choice::plain(entry);
        assert_eq!(plain.check(), Ok(()), "{}", entry.name);
        assert_eq!(plain.to_string(), entry.name);
        for setting in entry.settings {
            let text = format!("{}:{}={}", entry.name, setting.name, setting.by_default());
            let again: Choice = text.parse().unwrap();
            assert_eq!(again.to_string(), text);
            assert_eq!(again.manner(), plain.manner(), "{text}");
            assert_eq!(again.values().of(setting.name), setting.default);
            assert!(!setting.summary.is_empty());
        }
    }
}

#[test]
fn what_is_set_later_holds_whatever_it_is_called() {
    let linux: Choice = "linux-slot:page-cluster=5,block=fixed".parse().unwrap();
    let fewer = linux.with_window(4).unwrap();
    assert_eq!((linux.max_window(), fewer.max_window()), (32, 4));
    assert_eq!(fewer.to_string(), "linux-slot:max=4,block=fixed");
    let more = fewer.with("page-cluster=6").unwrap();
    assert_eq!(more.to_string(), "linux-slot:page-cluster=6,block=fixed");
    assert_eq!(more.build().manner().read_max, 64);
    let none: Choice = "none".parse().unwrap();
    assert_eq!(none.with_window(64), Ok(none));
    assert_eq!(none.max_window(), 1);
}

#[test]
fn two_names_of_one_setting_are_not_both_given() {
    let told = refused("linux-slot", "page-cluster=3,max=16").to_string();
    assert!(told.contains("max and page-cluster"), "{told}");
}

#[test]
fn unknown_policies_are_told_the_known_ones() {
    let told = refused("crystal-ball", "").to_string();
    for entry in readahead::REGISTRY {
        assert!(told.contains(entry.name), "{told}");
    }
}

#[test]
fn unknown_settings_are_told_the_known_ones() {
    for given in ["windows=8", "window", "=8", "history=3"] {
        let told = refused("asp", given).to_string();
        assert!(told.contains(given) && told.contains("mdis"), "{told}");
    }
    let told = refused("none", "window=8").to_string();
    assert!(told.contains("no setting"), "{told}");
}

#[test]
fn values_outside_their_range_are_told_the_range() {
    for (policy, given, range) in [
        ("asp", "window=0", "1 to 256"),
        ("asp", "window=-1", "1 to 256"),
        ("asp2", "max=257", "1 to 256"),
        ("asp2", "entries=0", "1 to 1024"),
        ("asp", "key=pid", "one, object, source"),
        ("asp", "step=", "1 to 256"),
        ("linux-vma", "max=33", "1 to 32"),
        ("linux-vma", "page-cluster=6", "0 to 5"),
        ("linux-slot", "page-cluster=9", "0 to 8"),
        ("leap", "history=1", "2 to 256"),
        ("stream", "max=0", "1 to 256"),
        ("bsd", "lastr=sometimes", "major-faults, every-fault, off"),
    ] {
        let told = refused(policy, given).to_string();
        assert!(told.contains(range), "{policy} {given}: {told}");
    }
}

#[test]
fn a_step_larger_than_the_largest_window_is_refused() {
    let larger = |setting, given, than, most| Refused::Larger {
        setting,
        given,
        than,
        most,
    };
    assert_eq!(refused("asp", "step=33"), larger("step", 33, "max", 32));
    assert_eq!(
        refused("asp", "max=4,step=1"),
        larger("window", 8, "max", 4)
    );
    assert_eq!(
        refused("leap", "split=33"),
        larger("split", 33, "history", 32)
    );
    let told = refused("asp", "step=33").to_string();
    assert!(
        told.contains("at most 32") && told.contains("max"),
        "{told}"
    );
}

#[test]
fn little_memory_has_a_smaller_largest_window_unless_one_is_set() {
    let of = |settings, mib: usize| {
        let stream = choice("stream", settings).unwrap();
        stream.for_frames(mib * 256)
    };
    let max = |settings, mib| of(settings, mib).max_window();
    assert_eq!((max("", 47), max("", 48)), (64, 128));
    assert_eq!((max("max=200", 8), max("max=200", 48)), (200, 200));
    assert_eq!((max("max=128", 8), max("max=128", 48)), (128, 128));
    assert_eq!(of("", 47).to_string(), "stream:max=64");
    assert_eq!(of("", 48).to_string(), "stream");
}
