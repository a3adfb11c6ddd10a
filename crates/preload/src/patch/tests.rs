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
