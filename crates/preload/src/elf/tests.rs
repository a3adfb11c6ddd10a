use super::*;

#[test]
fn symbols_are_where_the_loader_says() {
    let libc = Libc::find().expect("glibc");
    for name in [c"mmap", c"_Fork", c"syscall", c"brk"] {
        // SAFETY: a valid name.
        let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        let symbol = libc.symbol(name).expect("a function of glibc");
        assert_eq!(symbol.address, expected, "{name:?}");
        assert!((4..4096).contains(&symbol.bytes));
        assert!((libc.text().0..libc.text().1).contains(&symbol.address));
    }
    assert_eq!(libc.symbol(c"no_such_function_at_all"), None);
}
