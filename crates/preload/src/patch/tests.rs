use super::*;

const AT: usize = 0x10_0000;

#[test]
fn one_instruction_of_five_bytes_is_replaced() {
    // mov $0xb,%eax; syscall; ret
    let site = check(&[0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0xc3], AT).expect("patchable");
    assert_eq!(
        site,
        Site {
            at: AT,
            bytes: 5,
            single: true,
            movable: true,
            relative: None
        }
    );
}

#[test]
fn endbr64_stays() {
    let code = [
        0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0xc3,
    ];
    let site = check(&code, AT).expect("patchable");
    assert_eq!((site.at, site.bytes), (AT + 4, 5));
}

#[test]
fn an_instruction_cut_by_the_jump_moves_whole() {
    // sub $0x58,%rsp; mov %r8,0x40(%rsp); ret
    let code = [0x48, 0x83, 0xec, 0x58, 0x4c, 0x89, 0x44, 0x24, 0x40, 0xc3];
    let site = check(&code, AT).expect("patchable");
    assert_eq!((site.single, site.bytes, site.movable), (false, 9, true));
}

#[test]
fn an_operand_relative_to_its_place_is_found() {
    // cmpb $0,0x10(%rip); je +3; nop...: the entry of a call that may be cancelled
    let code = [
        0x80, 0x3d, 0x10, 0, 0, 0, 0, 0x74, 0x03, 0x90, 0x90, 0x90, 0xc3,
    ];
    let site = check(&code, AT).expect("patchable");
    assert_eq!(
        (site.bytes, site.movable, site.relative),
        (7, true, Some(2))
    );
}

#[test]
fn a_branch_into_the_overwritten_bytes_refuses() {
    // xor %eax,%eax; inc %eax; inc %eax; jmp -6 (to the second instruction)
    let code = [0x31, 0xc0, 0xff, 0xc0, 0xff, 0xc0, 0xeb, 0xfa];
    assert!(check(&code, AT).is_none());
}

#[test]
fn a_short_function_refuses() {
    // xor %eax,%eax; ret; nop...
    assert!(check(&[0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90], AT).is_none());
}

#[test]
fn an_entry_that_is_a_jump_already_refuses() {
    assert!(check(&[0xe9, 0, 1, 0, 0, 0x90, 0xc3], AT).is_none());
}

#[test]
fn a_jump_lands_on_its_target() {
    assert_eq!(jump_to(0x1000, 0x2000), [0xe9, 0xfb, 0x0f, 0, 0]);
    assert_eq!(jump_to(0x2000, 0x1000), [0xe9, 0xfb, 0xef, 0xff, 0xff]);
}

/// The general registers in the order of `enter`, and the flags.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    /// rax, rcx, rdx, rbx, rbp, rsi, rdi, r8 to r15.
    general: [u64; 15],
    flags: u64,
}

/// Calls `function` with the registers of `state`, and leaves there what they are then.
#[unsafe(naked)]
unsafe extern "C" fn enter(function: usize, state: *mut State) {
    core::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "push rdi",
        "push qword ptr [rsi + 120]",
        "popfq",
        "mov rax, [rsi]",
        "mov rcx, [rsi + 8]",
        "mov rdx, [rsi + 16]",
        "mov rbx, [rsi + 24]",
        "mov rbp, [rsi + 32]",
        "mov rdi, [rsi + 48]",
        "mov r8, [rsi + 56]",
        "mov r9, [rsi + 64]",
        "mov r10, [rsi + 72]",
        "mov r11, [rsi + 80]",
        "mov r12, [rsi + 88]",
        "mov r13, [rsi + 96]",
        "mov r14, [rsi + 104]",
        "mov r15, [rsi + 112]",
        "mov rsi, [rsi + 40]",
        "lea rsp, [rsp - 8]",
        "call [rsp + 8]",
        "lea rsp, [rsp + 8]",
        "pushfq",
        "push rax",
        "mov rax, [rsp + 24]",
        "mov [rax + 8], rcx",
        "mov [rax + 16], rdx",
        "mov [rax + 24], rbx",
        "mov [rax + 32], rbp",
        "mov [rax + 40], rsi",
        "mov [rax + 48], rdi",
        "mov [rax + 56], r8",
        "mov [rax + 64], r9",
        "mov [rax + 72], r10",
        "mov [rax + 80], r11",
        "mov [rax + 88], r12",
        "mov [rax + 96], r13",
        "mov [rax + 104], r14",
        "mov [rax + 112], r15",
        "pop rcx",
        "mov [rax], rcx",
        "pop rcx",
        "mov [rax + 120], rcx",
        "lea rsp, [rsp + 16]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// Functions as libc has them at its entries, each of which may be called with any registers.
const FUNCTIONS: [&[u8]; 5] = [
    // mov $39,%eax (getpid); syscall; ret
    &[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3],
    // endbr64; mov $39,%eax; syscall; ret
    &[0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3],
    // sub $0x58,%rsp; mov %r8,0x40(%rsp); adc %rsi,%rdi; mov 0x40(%rsp),%rax; lea 0x58(%rsp),%rsp; ret
    &[
        0x48, 0x83, 0xec, 0x58, 0x4c, 0x89, 0x44, 0x24, 0x40, 0x48, 0x11, 0xf7, 0x48, 0x8b, 0x44,
        0x24, 0x40, 0x48, 0x8d, 0x64, 0x24, 0x58, 0xc3,
    ],
    // cmpb $0x91,9(%rip), the last byte here; sete %dl; ret; nop...
    &[
        0x80, 0x3d, 0x09, 0, 0, 0, 0x91, 0x0f, 0x94, 0xc2, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x91,
    ],
    // adc $1,%eax; lea 4(%rip),%rcx; sbb %rdx,%rdx; ret: flags in, an address and flags out
    &[
        0x83, 0xd0, 0x01, 0x48, 0x8d, 0x0d, 4, 0, 0, 0, 0x48, 0x19, 0xd2, 0xc3,
    ],
];

/// Bytes from one function to the next: each lies at another distance from an aligned word.
const APART: usize = 65;
/// Functions of each kind.
const COPIES: usize = 8;

/// Fresh pages with the functions, `nop`s between them, and their places and lengths.
fn text() -> (usize, usize, Vec<(usize, usize)>) {
    let len = (FUNCTIONS.len() * COPIES * APART).next_multiple_of(PAGE_BYTES);
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a fresh mapping replaces nothing.
    let at = unsafe { raw::mmap(0, len, prot, flags, -1, 0) } as usize;
    // SAFETY: the pages mapped above.
    let bytes = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len) };
    bytes.fill(0x90);
    let mut places = Vec::new();
    for (index, code) in FUNCTIONS
        .iter()
        .cycle()
        .take(FUNCTIONS.len() * COPIES)
        .enumerate()
    {
        bytes[index * APART..][..code.len()].copy_from_slice(code);
        places.push((at + index * APART, code.len()));
    }
    // SAFETY: as above.
    let sealed = unsafe { raw::mprotect(at, len, libc::PROT_READ | libc::PROT_EXEC) };
    assert_eq!(sealed, 0);
    (at, len, places)
}

/// What `function` leaves, started with some registers and with each of the flags that it may read.
fn outcomes(function: usize) -> Vec<State> {
    // Carry, parity, auxiliary carry, zero, sign, overflow; bit 1 is always set, and interrupts are on.
    let flags = [0, 1, 4, 0x10, 0x40, 0x80, 0x800, 0x8d5].map(|flags| flags | 0x202);
    let start = |flags| State {
        general: core::array::from_fn(|register| {
            0x1111_2222_3333_4444_u64.wrapping_mul(register as u64 + 1)
        }),
        flags,
    };
    flags
        .map(|flags| {
            let mut state = start(flags);
            // SAFETY: a function of `FUNCTIONS`, whose stack is as it was when it returns.
            unsafe { enter(function, &raw mut state) };
            state
        })
        .to_vec()
}

#[test]
fn a_patched_function_leaves_the_registers_and_flags_that_it_left_before() {
    let (low, len, places) = text();
    let before: Vec<_> = places.iter().map(|&(at, _)| outcomes(at)).collect();
    // SAFETY: the pages of `text`, readable.
    let original = unsafe { core::slice::from_raw_parts(low as *const u8, len) }.to_vec();
    let area = map_stub_area(low).expect("room near it");
    let mut sites = Vec::new();
    for (index, &(at, bytes)) in places.iter().enumerate() {
        // SAFETY: as above.
        let code = unsafe { core::slice::from_raw_parts(at as *const u8, bytes) };
        let site = check(code, at).expect("patchable");
        assert!(site.movable);
        let place = area + index * PLACE_BYTES;
        let entry = EntryPoint {
            name: c"function",
            // The hook does nothing but call the original.
            hook: place + STUB_BYTES,
            required: true,
            original: Some(Box::leak(Box::new(AtomicUsize::new(0)))),
        };
        write_stub(place, &entry, &site);
        let told = entry
            .original
            .map(|original| original.load(Ordering::Acquire));
        assert_eq!(told, Some(place + STUB_BYTES));
        sites.push(site.at);
    }
    // SAFETY: the stubs, and the pages of `text` with sites that were checked.
    unsafe {
        raw::mprotect(area, AREA_BYTES, libc::PROT_READ | libc::PROT_EXEC);
        overwrite(low, low + len, area, sites.iter().copied()).expect("patched");
    }
    for (&(at, _), before) in places.iter().zip(&before) {
        assert_eq!(&outcomes(at), before, "the function at {:x}", at - low);
    }
    // Five bytes of each, and nothing else.
    // SAFETY: as above.
    let patched = unsafe { core::slice::from_raw_parts(low as *const u8, len) };
    let mut expected = original;
    for (index, &at) in sites.iter().enumerate() {
        expected[at - low..][..JUMP_BYTES]
            .copy_from_slice(&jump_to(at, area + index * PLACE_BYTES));
    }
    assert!(patched == expected);
    // SAFETY: nobody calls them any more.
    unsafe {
        raw::munmap(area, AREA_BYTES);
        raw::munmap(low, len);
    }
}

#[test]
fn a_jump_to_any_byte_that_is_overwritten_refuses_and_to_others_it_does_not() {
    // inc %eax, six times; then jmp, je or loop to each byte; ret
    for opcode in [0xeb, 0x74, 0xe2] {
        for target in -2..=14_i8 {
            let mut code = [0xff, 0xc0].repeat(6);
            code.extend([opcode, (target - 14) as u8, 0xc3]);
            let allowed = !(1..JUMP_BYTES as i8).contains(&target);
            assert_eq!(
                check(&code, AT).is_some(),
                allowed,
                "{opcode:x} to {target}"
            );
        }
    }
}

#[test]
fn libc_stays_byte_by_byte_as_it_was_when_one_entry_is_refused() {
    let libc = Libc::find().expect("glibc");
    let (low, high) = libc.text();
    // SAFETY: libc's text.
    let text = || unsafe { core::slice::from_raw_parts(low as *const u8, high - low) }.to_vec();
    let before = text();
    let entry = |name| EntryPoint {
        name,
        hook: AT,
        required: true,
        original: None,
    };
    let entries = [entry(c"getsid"), entry(c"no_such_function_at_all")];
    // SAFETY: refused before anything is written.
    let refused = unsafe { install(&entries, 1) };
    assert!(matches!(refused, Err(Refusal::Missing(name)) if name == c"no_such_function_at_all"));
    assert!(text() == before);
}
