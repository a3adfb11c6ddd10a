use super::*;

const fn span(start: usize, end: usize, home: usize) -> Span {
    Span { start, end, home }
}

#[test]
fn a_part_knows_where_the_home_has_it() {
    let whole = span(0x5000, 0x9000, 0x1_0000);
    assert_eq!(
        whole.within(0x6000, 0x7000),
        Some(span(0x6000, 0x7000, 0x1_1000))
    );
    assert_eq!(whole.within(0x9000, 0xA000), None);
    let part = whole.within_home(0x1_3000, 0x2_0000);
    assert_eq!(part, Some(span(0x8000, 0x9000, 0x1_3000)));
    assert_eq!(whole.within_home(0xF000, 0x1_0000), None);
}

#[test]
fn what_is_cut_out_leaves_both_sides() {
    let mut spans = vec![span(0x1000, 0x5000, 0x10_1000), span(0x8000, 0x9000, 0)];
    cut(&mut spans, 0x2000, 0x3000);
    let left = [
        span(0x1000, 0x2000, 0x10_1000),
        span(0x3000, 0x5000, 0x10_3000),
        span(0x8000, 0x9000, 0),
    ];
    assert_eq!(spans, left);
    cut(&mut spans, 0, usize::MAX);
    assert_eq!(spans, []);
}
