//! Who may have how many frames of the limit.
//!
//! Everyone has a minimum, and of the rest a part by weight of those who want more, as Linux control groups divide what they have (`memory.min`, `cpu.weight`
//! in Documentation/admin-guide/cgroup-v2.rst): what somebody does not want goes to the others.

/// What one client may claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Frames that it has if it wants them, whatever others do.
    pub minimum: u64,
    /// Its part of the rest, beside those of others. Not 0.
    pub weight: u32,
    /// Frames that it could use.
    pub wanted: u64,
}

/// Divides `limit` frames: everyone gets the minimum, wanted or not, and beyond it what is wanted, as far as weights allow. What nobody wants is left.
///
/// Costs a pass over the claims for each that is satisfied, at most.
///
/// # Panics
/// When the minimums are more than the limit.
#[must_use]
pub fn divide(limit: u64, claims: &[Claim]) -> Vec<u64> {
    let mut parts: Vec<u64> = claims.iter().map(|claim| claim.minimum).collect();
    let mut left = limit
        .checked_sub(parts.iter().sum())
        .expect("minimums within the limit");
    let wants = |part: u64, claim: &Claim| claim.wanted > part;
    loop {
        let open = || claims.iter().enumerate();
        let weights: u64 = open()
            .filter(|&(i, claim)| wants(parts[i], claim))
            .map(|(_, claim)| u64::from(claim.weight))
            .sum();
        if weights == 0 || left == 0 {
            return parts;
        }
        // Who wants no more than this round's part gets that, and the others share what is left anew.
        let round = left;
        let mut satisfied = false;
        for (i, claim) in claims.iter().enumerate() {
            let part = round as u128 * u128::from(claim.weight) / u128::from(weights);
            let missing = claim.wanted.saturating_sub(parts[i]);
            if missing > 0 && u128::from(missing) <= part {
                parts[i] += missing;
                left -= missing;
                satisfied = true;
            }
        }
        if !satisfied {
            for (i, claim) in claims.iter().enumerate() {
                if wants(parts[i], claim) {
                    let part = round as u128 * u128::from(claim.weight) / u128::from(weights);
                    parts[i] += part as u64;
                }
            }
            return parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn claim(minimum: u64, weight: u32, wanted: u64) -> Claim {
        Claim {
            minimum,
            weight,
            wanted,
        }
    }

    #[test]
    fn weights_divide_what_the_minimums_leave() {
        let greedy = |weight| claim(100, weight, u64::MAX);
        assert_eq!(divide(1000, &[greedy(100), greedy(300)]), [300, 700]);
        assert_eq!(divide(1000, &[greedy(100)]), [1000]);
        assert_eq!(divide(200, &[greedy(1), greedy(10_000)]), [100, 100]);
    }

    #[test]
    fn what_is_not_wanted_goes_to_others() {
        let claims = [
            claim(100, 100, 150),
            claim(100, 100, 0),
            claim(100, 100, 5000),
        ];
        assert_eq!(divide(1000, &claims), [150, 100, 750]);
        let modest = [claim(10, 100, 20), claim(10, 100, 30)];
        assert_eq!(divide(1000, &modest), [20, 30]);
    }

    #[test]
    fn no_more_than_the_limit_is_given_and_nobody_gets_less_than_the_minimum() {
        let mut seed = 9u64;
        let mut random = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % end
        };
        for _ in 0..2000 {
            let count = 1 + random(20);
            let claims: Vec<Claim> = (0..count)
                .map(|_| claim(256 + random(500), 1 + random(10_000) as u32, random(9000)))
                .collect();
            let least: u64 = claims.iter().map(|claim| claim.minimum).sum();
            let limit = least + random(20_000);
            let parts = divide(limit, &claims);
            assert!(parts.iter().sum::<u64>() <= limit);
            let mut wanted = 0;
            for (claim, part) in claims.iter().zip(&parts) {
                assert!(*part >= claim.minimum);
                assert!(*part <= claim.wanted.max(claim.minimum));
                wanted += claim.wanted.max(claim.minimum);
            }
            let given: u64 = parts.iter().sum();
            assert!(
                given + count > limit.min(wanted),
                "what is wanted is given, but for what does not divide"
            );
        }
    }
}
