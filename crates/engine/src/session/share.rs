//! How one limit is divided among the processes of a tree.

/// The largest equal ceiling under which the demands fit the limit, or `u64::MAX` when they all do.
///
/// A process that asks for less than the ceiling gets all it asks for, and what it leaves goes to
/// the others (max-min fairness). All values in pages.
#[must_use]
pub fn ceiling(limit_pages: u64, demands: &mut [u64]) -> u64 {
    demands.sort_unstable();
    let mut left = limit_pages;
    for (i, &demand) in demands.iter().enumerate() {
        let share = left / (demands.len() - i) as u64;
        if demand > share {
            return share;
        }
        left -= demand;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits() {
        assert_eq!(ceiling(100, &mut []), u64::MAX);
        assert_eq!(ceiling(100, &mut [40, 60]), u64::MAX);
    }

    #[test]
    fn the_small_keep_theirs_and_the_large_share_the_rest() {
        assert_eq!(ceiling(100, &mut [90, 10, 90]), 45);
        assert_eq!(ceiling(100, &mut [1000]), 100);
        assert_eq!(ceiling(100, &mut [50, 51]), 50);
        assert_eq!(ceiling(0, &mut [1]), 0);
    }

    #[test]
    fn ceilings_never_hand_out_more_than_the_limit() {
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            let limit = random(1000);
            let mut demands: Vec<u64> = (0..1 + random(12)).map(|_| random(300)).collect();
            let ceiling = ceiling(limit, &mut demands);
            let handed: u64 = demands.iter().map(|&d| d.min(ceiling)).sum();
            let wanted: u64 = demands.iter().sum();
            assert!(handed <= limit || wanted == handed && wanted <= limit);
            if wanted > limit {
                assert!(
                    limit - handed < demands.len() as u64,
                    "limit {limit} {demands:?} {ceiling}"
                );
            }
        }
    }
}
