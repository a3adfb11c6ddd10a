use std::collections::HashSet;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use proptest::prelude::*;

use super::*;

const SHIM: &CStr = c"/opt/outpage/liboutpage_preload.so";
const SHIM_ENTRY: &str = "LD_PRELOAD=/opt/outpage/liboutpage_preload.so";
const ASAN_ENTRY: &str = "ASAN_OPTIONS=verify_asan_link_order=0";

/// What the process remembers is one for all tests: one at a time sets it.
static ALONE: Mutex<()> = Mutex::new(());

/// An environment as programs have it.
struct Environment {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    fn new<S: AsRef<[u8]>>(texts: &[S]) -> Self {
        let text = |text: &S| CString::new(text.as_ref()).expect("no zero");
        let texts: Vec<_> = texts.iter().map(text).collect();
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(core::ptr::null());
        Self {
            _texts: texts,
            pointers,
        }
    }

    fn strings(&self) -> Strings {
        self.pointers.as_ptr()
    }
}

/// The texts of an environment.
fn texts(envp: Strings) -> Vec<String> {
    // SAFETY: the tests pass environments.
    unsafe { entries(envp).map(|entry| String::from_utf8_lossy(bytes(entry)).into_owned()) }
        .collect()
}

/// This process started with `texts` and the shim; nobody else says otherwise meanwhile.
fn started_with<S: AsRef<[u8]>>(texts: &[S]) -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: an environment.
    unsafe { remember(Environment::new(texts).strings(), SHIM) };
    alone
}

/// What a new program finds if it is executed with `texts`.
fn passed_on<S: AsRef<[u8]>>(given: &[S]) -> Vec<String> {
    let given = Environment::new(given);
    let found = Mutex::new(Vec::new());
    let result = with_environment(given.strings(), |envp| {
        *found.lock().expect("not poisoned") = texts(envp);
        -2
    });
    assert_eq!(result, -2, "the call's own result");
    found.into_inner().expect("not poisoned")
}

const START: [&str; 4] = [
    "HOME=/root",
    "OUTPAGE_MEMORY=64M",
    "OUTPAGE_SESSION=/proc/7/fd/3",
    "LD_PRELOAD=x",
];

#[test]
fn a_program_without_an_environment_gets_what_the_shim_needs() {
    let _alone = started_with(&START);
    let expected = [SHIM_ENTRY, ASAN_ENTRY, START[1], START[2]];
    assert_eq!(passed_on::<&str>(&[]), expected);
    // Linux takes a null pointer for an empty environment.
    let result = with_environment(core::ptr::null(), |envp| {
        assert_eq!(texts(envp), expected);
        7
    });
    assert_eq!(result, 7);
}

#[test]
fn what_the_program_removed_comes_back_and_the_rest_is_its_own() {
    let _alone = started_with(&START);
    let cleaned = ["PATH=/bin", "HOME=/home", "HOME=/twice", "", "NO_EQUALS"];
    let mut expected = vec![SHIM_ENTRY, ASAN_ENTRY];
    expected.extend(cleaned);
    expected.extend([START[1], START[2]]);
    assert_eq!(passed_on(&cleaned), expected);
}

#[test]
fn what_already_has_everything_is_passed_on_as_it_is() {
    let _alone = started_with(&START);
    let list = format!("LD_PRELOAD=/lib/other.so:{}", &SHIM_ENTRY[PRELOAD.len()..]);
    for list in [SHIM_ENTRY, &list, &list.replace(':', " ")] {
        let given = Environment::new(&["OUTPAGE_MEMORY=1G", ASAN_ENTRY, list]);
        let same = with_environment(given.strings(), |envp| isize::from(envp == given.strings()));
        assert_eq!(same, 1, "{list}");
    }
}

#[test]
fn a_limit_of_the_programs_own_stands_and_nothing_is_carried_beside_it() {
    let _alone = started_with(&START);
    let own = ["OUTPAGE_MEMORY=1G"];
    assert_eq!(passed_on(&own), [SHIM_ENTRY, ASAN_ENTRY, own[0]]);
    // The name has to be whole.
    let other = ["OUTPAGE_MEMORY_OF_MINE=1G", "XOUTPAGE_MEMORY=1G"];
    let expected = [
        SHIM_ENTRY, ASAN_ENTRY, other[0], other[1], START[1], START[2],
    ];
    assert_eq!(passed_on(&other), expected);
}

/// getenv gives the first of several.
#[test]
fn a_variable_that_the_program_changed_comes_before_the_one_that_is_carried() {
    let _alone = started_with(&START);
    let found = passed_on(&["OUTPAGE_SESSION=/elsewhere"]);
    let first = found
        .iter()
        .find(|text| text.starts_with("OUTPAGE_SESSION="));
    assert_eq!(
        first.map(String::as_str),
        Some("OUTPAGE_SESSION=/elsewhere")
    );
    assert!(
        found.iter().any(|text| text == START[1]),
        "the limit: {found:?}"
    );
}

#[test]
fn libraries_of_the_programs_own_are_loaded_after_the_shim() {
    let _alone = started_with(&START);
    let joined = |list: &str| passed_on(&[list])[0].clone();
    assert_eq!(
        joined("LD_PRELOAD=/a.so:/b.so"),
        format!("{SHIM_ENTRY}:/a.so:/b.so")
    );
    assert_eq!(joined("LD_PRELOAD="), format!("{SHIM_ENTRY}:"));
    // A longer name that begins or ends like the shim's is another library.
    let longer = format!("{SHIM_ENTRY}.1");
    assert_eq!(
        joined(&longer),
        format!("{SHIM_ENTRY}:{}", &longer[PRELOAD.len()..])
    );
}

/// The loader takes the first of several, so that is the one the shim has to be in.
#[test]
fn of_two_lists_of_libraries_the_first_counts() {
    let _alone = started_with(&START);
    let found = passed_on(&["LD_PRELOAD=/a.so", SHIM_ENTRY, "OUTPAGE_MEMORY=1G"]);
    assert_eq!(found[0], format!("{SHIM_ENTRY}:/a.so"));
    assert!(!found[1..].iter().any(|text| text == "LD_PRELOAD=/a.so"));
}

#[test]
fn options_of_address_sanitizer_are_kept_and_its_order_is_the_programs_to_choose() {
    let _alone = started_with(&START);
    let asan = |text: &str| {
        let found = passed_on(&[text]);
        let own = found
            .iter()
            .filter(|text| text.starts_with("ASAN_OPTIONS="));
        own.cloned().collect::<Vec<_>>()
    };
    let joined = "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0";
    assert_eq!(asan("ASAN_OPTIONS=detect_leaks=0"), [joined]);
    let chosen = "ASAN_OPTIONS=verify_asan_link_order=1:halt_on_error=0";
    assert_eq!(asan(chosen), [chosen]);
}

/// Short and long, the stack's room or a mapping's: the program finds the same.
#[test]
fn any_number_of_entries_is_passed_on() {
    let _alone = started_with(&START);
    for count in [0, 1, 473, 474, 475, 476, 477, 478, 479, 512, 3_000] {
        let given: Vec<_> = (0..count).map(|n| format!("V{n}={n}")).collect();
        let found = passed_on(&given);
        assert_eq!(found.len(), count + 4, "{count} entries");
        assert_eq!(found[2..2 + count], given);
    }
}

#[test]
fn lists_of_any_length_are_joined() {
    let _alone = started_with(&START);
    let rest = SHIM_ENTRY.len() + 2;
    for len in [
        1,
        100,
        TEXT_ON_STACK - rest - 1,
        TEXT_ON_STACK - rest,
        TEXT_ON_STACK,
        100_000,
    ] {
        let own = "x".repeat(len);
        let found = passed_on(&[format!("LD_PRELOAD={own}"), format!("ASAN_OPTIONS={own}")]);
        assert_eq!(found[0], format!("{SHIM_ENTRY}:{own}"));
        assert_eq!(
            found[1],
            format!("ASAN_OPTIONS={own}:verify_asan_link_order=0")
        );
    }
}

/// An execution that fails is followed by others: a search along PATH tries many.
#[test]
fn nothing_stays_mapped_behind_an_execution_that_failed() {
    let _alone = started_with(&START);
    let given: Vec<_> = (0..1_000).map(|n| format!("V{n}={n}")).collect();
    let given = Environment::new(&given);
    let place = core::cell::Cell::new(core::ptr::null());
    with_environment(given.strings(), |envp| {
        place.set(envp);
        -2
    });
    let page = place.get() as usize & !0xfff;
    let args = [page, 1, libc::MS_ASYNC as usize, 0, 0, 0];
    // SAFETY: asks whether the page is mapped.
    let told = unsafe { raw::call(libc::SYS_msync, args) };
    assert_eq!(told, -(libc::ENOMEM as isize));
}

#[test]
fn more_variables_than_there_is_room_for_are_left_out_and_overwrite_nothing() {
    let many: Vec<_> = (0..CARRIED_MAX + 9)
        .map(|n| format!("OUTPAGE_X{n}=1"))
        .collect();
    let _alone = started_with(&many);
    let found = passed_on::<&str>(&[]);
    assert_eq!(found[2..], many[..CARRIED_MAX]);
    // A process that starts with fewer remembers no more than those.
    drop(_alone);
    let _alone = started_with(&START);
    assert_eq!(passed_on::<&str>(&[]).len(), 4);
}

/// The program may overwrite its environment, as those do that show a title in `ps`.
#[test]
fn what_is_remembered_is_a_copy() {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = *b"OUTPAGE_MEMORY=64M\0";
    let pointers = [text.as_ptr().cast(), core::ptr::null()];
    // SAFETY: an environment.
    unsafe { remember(pointers.as_ptr(), SHIM) };
    text[..18].fill(b'x');
    assert_eq!(passed_on::<&str>(&[])[2], "OUTPAGE_MEMORY=64M");
    drop(alone);
}

#[test]
fn without_a_shim_to_carry_an_environment_is_left_alone() {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    OWN_PRELOAD.store(core::ptr::null_mut(), Ordering::Release);
    let given = Environment::new(&["HOME=/"]);
    let same = with_environment(given.strings(), |envp| isize::from(envp == given.strings()));
    assert_eq!(same, 1);
    drop(alone);
}

/// Builds into exactly the room that `with_environment` makes, between marks.
fn build_between_marks(envp: Strings) {
    const MARK: usize = 0x5a5a_5a5a_5a5a_5a5a;
    let found = search(envp, SHIM.to_bytes()).expect("readable");
    // SAFETY: found in the environment, and what `remember` set.
    let (pointers, list_bytes) =
        unsafe { room(&found, bytes(OWN_PRELOAD.load(Ordering::Acquire))) };
    let mut array = vec![MARK; pointers + 1];
    let mut text = vec![0x5a_u8; list_bytes + 8];
    // SAFETY: both have the room that is asked for, and some behind it.
    unsafe { build(envp, &found, array.as_mut_ptr().cast(), text.as_mut_ptr()) };
    assert_eq!(array[pointers], MARK, "behind the array");
    assert_eq!(text[list_bytes..], [0x5a; 8], "behind the text");
}

fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[A-Z]{1,3}=[a-z]{0,3}",
        1 => "OUTPAGE_[A-Z]{1,2}=[a-z]{0,3}",
        1 => Just("OUTPAGE_MEMORY=1G".to_owned()),
        1 => "LD_PRELOAD=[a-z:/ ]{0,9}",
        1 => Just(SHIM_ENTRY.to_owned()),
        1 => "ASAN_OPTIONS=[a-z:=]{0,9}",
        1 => Just(ASAN_ENTRY.to_owned()),
    ]
}

proptest! {
    #[test]
    fn any_environment_keeps_its_entries_and_gets_what_it_lacks(
        given in proptest::collection::vec(entry(), 0..12),
        carried in 0..CARRIED_MAX,
    ) {
        let mut start: Vec<_> = (0..carried).map(|n| format!("OUTPAGE_S{n}=1")).collect();
        start.push("OUTPAGE_MEMORY=64M".to_owned());
        let _alone = started_with(&start);
        build_between_marks(Environment::new(&given).strings());
        let found = passed_on(&given);
        let first = |name: &str| found.iter().find(|text| text.starts_with(name));
        let shim = SHIM.to_str().expect("text");
        let list = first("LD_PRELOAD=").expect("a list");
        prop_assert!(list["LD_PRELOAD=".len()..].split([':', ' ']).any(|part| part == shim), "{}", list);
        let own_limit = given.iter().any(|text| text == "OUTPAGE_MEMORY=1G");
        let limit = if own_limit { "OUTPAGE_MEMORY=1G" } else { "OUTPAGE_MEMORY=64M" };
        prop_assert_eq!(first("OUTPAGE_MEMORY=").map(String::as_str), Some(limit));
        prop_assert!(first("ASAN_OPTIONS=").is_some_and(|text| text.contains("verify_asan_link_order=")));
        // All but the two that may be joined, each as often, in the same order.
        let other = |text: &&String| !text.starts_with("LD_PRELOAD=") && !text.starts_with("ASAN_OPTIONS=");
        let theirs: Vec<_> = given.iter().filter(other).collect();
        let ours: Vec<_> = found.iter().filter(other).collect();
        prop_assert_eq!(&ours[..theirs.len()], &theirs[..]);
        let rest: HashSet<_> = ours[theirs.len()..].iter().collect();
        prop_assert_eq!(rest.len(), if own_limit { 0 } else { start.len() });
        // A program that executes another passes on what it got.
        prop_assert_eq!(passed_on(&found), found);
    }
}
