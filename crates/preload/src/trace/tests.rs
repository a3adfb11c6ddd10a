use super::Ranges;

#[test]
fn ranges_split_and_cover() {
    let mut ranges = Ranges(Vec::new());
    ranges.insert(10, 20);
    ranges.insert(30, 40);
    ranges.remove(15, 35);
    assert_eq!(ranges.0, [(10, 15), (35, 40)]);
    ranges.insert(12, 37);
    assert_eq!(ranges.0, [(10, 12), (12, 37), (37, 40)]);
    ranges.remove(13, 14);
    assert_eq!(ranges.0, [(10, 12), (12, 13), (14, 37), (37, 40)]);
    assert_eq!((ranges.missing(0, 50), ranges.missing(12, 20)), (21, 1));
    ranges.remove(0, 100);
    assert!(ranges.0.is_empty());
}
