//! What people may set of read-ahead policies, and what they are told when they may not.

use outpage_core::readahead::{
    self, Abilities, Arrival, Govern, Key, Params, Placement, Refused, configure,
};

/// Plenty.
const FRAMES: usize = 1 << 20;

fn refused(policy: &str, settings: &str, can: Abilities) -> Refused {
    configure(policy, settings, FRAMES, can).unwrap_err()
}

#[test]
fn settings_are_read() {
    let (entry, params) = configure(
        "asp",
        "window=4, step=2,max=64,mdis=16,entries=3,key=source,placement=target,arrival=mapped",
        FRAMES,
        Abilities::ALL,
    )
    .unwrap();
    let expected = Params {
        window: 4,
        step: 2,
        max_window: 64,
        mdis: 16,
        entries: 3,
        key: Key::Source,
        placement: Placement::Target,
        arrival: Arrival::Mapped,
        govern: Govern::On,
        ..entry.params()
    };
    assert_eq!((entry.name, params), ("asp", expected));
    for (cluster, slots) in [(0, 1), (3, 8), (5, 32)] {
        let text = format!("page-cluster={cluster}");
        for policy in ["linux-slot", "linux-vma"] {
            let (_, params) = configure(policy, &text, FRAMES, Abilities::ALL).unwrap();
            assert_eq!(params.max_window, slots);
        }
    }
}

#[test]
fn every_default_is_allowed_and_said_as_it_is_set() {
    for entry in readahead::REGISTRY {
        let params = entry.params();
        assert_eq!(
            entry.validate(&params, Abilities::ALL),
            Ok(()),
            "{}",
            entry.name
        );
        for setting in entry.settings {
            let mut again = params;
            let text = format!("{}={}", setting.name, setting.value(&params));
            // A window between two powers of two has no page-cluster of its own.
            if setting.name != "page-cluster" || params.max_window.is_power_of_two() {
                assert_eq!(
                    entry.set_all(&mut again, &text),
                    Ok(()),
                    "{} {text}",
                    entry.name
                );
                assert_eq!(again, params);
            }
            assert!(!setting.help.is_empty());
        }
    }
}

#[test]
fn unknown_policies_are_told_the_known_ones() {
    let told = refused("crystal-ball", "", Abilities::ALL).to_string();
    for entry in readahead::REGISTRY {
        assert!(told.contains(entry.name), "{told}");
    }
}

#[test]
fn unknown_settings_are_told_the_known_ones() {
    for given in ["windows=8", "window", "=8", "history=3"] {
        let told = refused("asp", given, Abilities::ALL).to_string();
        assert!(told.contains(given) && told.contains("mdis"), "{told}");
    }
    let told = refused("none", "window=8", Abilities::ALL).to_string();
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
        let told = refused(policy, given, Abilities::ALL).to_string();
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
    let all = Abilities::ALL;
    assert_eq!(
        refused("asp", "step=33", all),
        larger("step", 33, "max", 32)
    );
    assert_eq!(
        refused("asp", "max=4,step=1", all),
        larger("window", 8, "max", 4)
    );
    assert_eq!(
        refused("leap", "split=33", all),
        larger("split", 33, "history", 32)
    );
    let told = refused("asp", "step=33", all).to_string();
    assert!(
        told.contains("at most 32") && told.contains("max"),
        "{told}"
    );
}

#[test]
fn a_policy_that_needs_what_the_body_lacks_is_told_what_can_be_had() {
    let blind = Abilities {
        touches: false,
        sources: false,
    };
    for (policy, settings, allowed) in [
        ("asp", "", "arrival=mapped"),
        ("linux-slot", "", "arrival=mapped"),
        ("linux-vma", "", "another policy: none, bsd, stream"),
        ("leap", "", "another policy: none, bsd, stream"),
        ("stream", "arrival=staged", "arrival=mapped"),
        ("asp", "arrival=mapped,key=source", "key=one, object"),
    ] {
        let told = refused(policy, settings, blind).to_string();
        assert!(told.contains(allowed), "{policy} {settings}: {told}");
    }
    for (policy, settings) in [("stream", ""), ("bsd", ""), ("asp", "arrival=mapped")] {
        assert!(
            configure(policy, settings, FRAMES, blind).is_ok(),
            "{policy}"
        );
    }
}

#[test]
fn numbers_give_the_parameters_back() {
    for entry in readahead::REGISTRY {
        let params = entry.params();
        assert_eq!(Params::from_numbers(params.numbers()), Some(params));
    }
    let mut numbers = Params::default().numbers();
    numbers[0] = 0;
    assert_eq!(Params::from_numbers(numbers), None);
}

#[test]
fn little_memory_has_a_smaller_largest_window_unless_one_is_set() {
    let max = |settings, mib: usize| {
        let frames = mib * 256;
        let (_, params) = configure("stream", settings, frames, Abilities::ALL).unwrap();
        params.max_window
    };
    assert_eq!((max("", 47), max("", 48)), (64, 128));
    assert_eq!((max("max=200", 8), max("max=200", 48)), (200, 200));
}
