//! A fast Fourier transform in place, radix 2, forward and back.
//!
//! Over the integers modulo 2^64 - 2^32 + 1 instead of complex numbers: the same butterflies on the same
//! places, and the inverse has to give back every bit.

use super::report::{Progress, Recorder};
use super::words::{check, expect, filled, word, words_of};
use super::{Args, Outcome, WorkloadError};

/// The prime of the transform.
const P: u64 = 0xffff_ffff_0000_0001;
/// The longest transform is of 2 to the power of so many words: there are no roots for a longer one.
const LEN_BITS_MAX: u32 = 32;
/// 2^64 modulo [`P`].
const EPSILON: u64 = 0xffff_ffff;
/// A generator of all that is not zero modulo [`P`].
const GENERATOR: u64 = 7;
/// Blocks of at most so many words are transformed stage by stage in any order: half a page.
const BLOCK_WORDS: usize = 256;

/// `a + b`, both below [`P`].
const fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    if carry || sum >= P {
        sum.wrapping_sub(P)
    } else {
        sum
    }
}

/// `a - b`, both below [`P`].
const fn sub(a: u64, b: u64) -> u64 {
    if a >= b {
        a - b
    } else {
        a.wrapping_sub(b).wrapping_add(P)
    }
}

/// `a * b`, both below [`P`]. With `h` and `m` the upper and the lower half of the product's upper 64 bits:
/// 2^64 is 2^32 - 1 and 2^96 is -1 modulo [`P`].
const fn mul(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    let (low, high) = (product as u64, (product >> 64) as u64);
    let (h, m) = (high >> 32, high & EPSILON);
    let (mut rest, borrow) = low.overflowing_sub(h);
    if borrow {
        rest = rest.wrapping_sub(EPSILON);
    }
    let (mut sum, carry) = rest.overflowing_add(m * EPSILON);
    if carry {
        sum = sum.wrapping_add(EPSILON);
    }
    if sum >= P { sum - P } else { sum }
}

/// `a / 2`, `a` below [`P`].
const fn half(a: u64) -> u64 {
    (a >> 1) + (a & 1) * P.div_ceil(2)
}

const fn power(base: u64, exponent: u64) -> u64 {
    let (mut result, mut base, mut exponent) = (1, base, exponent);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = mul(result, base);
        }
        base = mul(base, base);
        exponent >>= 1;
    }
    result
}

/// A root of unity of order `len`, a power of two; its inverse when `inverse`.
const fn root(len: usize, inverse: bool) -> u64 {
    let root = power(GENERATOR, (P - 1) / len as u64);
    if inverse { power(root, P - 2) } else { root }
}

/// The roots for blocks of every power of two of words.
struct Roots([u64; LEN_BITS_MAX as usize + 1]);

impl Roots {
    fn new(way: Way) -> Self {
        Self(std::array::from_fn(|bits| {
            root(1 << bits, way == Way::Inverse)
        }))
    }

    const fn of(&self, block: &[u64]) -> u64 {
        self.0[block.len().trailing_zeros() as usize]
    }
}

/// One way of the transform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// From the natural order to the bit-reversed one, large blocks first.
    Forward,
    /// Back, small blocks first.
    Inverse,
}

impl Way {
    /// The butterflies of one block: the lower half against the upper half, from the first on.
    fn butterflies(self, block: &mut [u64], roots: &Roots) {
        let root = roots.of(block);
        let (low, high) = block.split_at_mut(block.len() / 2);
        let mut twiddle = 1;
        for (a, b) in low.iter_mut().zip(high) {
            (*a, *b) = match self {
                Self::Forward => (add(*a, *b), mul(sub(*a, *b), twiddle)),
                Self::Inverse => {
                    let b = mul(*b, twiddle);
                    (half(add(*a, b)), half(sub(*a, b)))
                }
            };
            twiddle = mul(twiddle, root);
        }
    }

    /// Stage by stage over the whole array.
    fn by_stages(self, words: &mut [u64], roots: &Roots, stage: &mut impl FnMut(usize)) {
        let stages = words.len().trailing_zeros();
        for at in 1..=stages {
            let bits = match self {
                Self::Forward => stages + 1 - at,
                Self::Inverse => at,
            };
            for block in words.chunks_exact_mut(1 << bits) {
                self.butterflies(block, roots);
            }
            stage(words.len());
        }
    }

    /// Each half through all its stages before the other.
    fn by_halves(self, words: &mut [u64], roots: &Roots, done: &mut impl FnMut(usize)) {
        if words.len() <= BLOCK_WORDS {
            return self.by_stages(words, roots, done);
        }
        if self == Self::Forward {
            self.butterflies(words, roots);
        }
        let (low, high) = words.split_at_mut(words.len() / 2);
        self.by_halves(low, roots, done);
        self.by_halves(high, roots, done);
        if self == Self::Inverse {
            self.butterflies(words, roots);
        }
        done(words.len());
    }

    /// The whole transform; `breadth` goes stage by stage, else by halves.
    fn transform(self, words: &mut [u64], breadth: bool, progress: &mut Progress) {
        let total = words.len() * words.len().trailing_zeros() as usize;
        let mut behind = 0;
        let mut done = |words: usize| {
            behind += words;
            progress.at(behind as u64, total as u64);
        };
        let roots = Roots::new(self);
        if breadth {
            self.by_stages(words, &roots, &mut done);
        } else {
            self.by_halves(words, &roots, &mut done);
        }
    }
}

/// Swaps each word with the one whose place has its bits in reverse order.
fn reverse(words: &mut [u64], progress: &mut Progress) {
    let bits = words.len().trailing_zeros();
    for i in 0..words.len() {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            words.swap(i, j);
        }
        progress.at(i as u64, words.len() as u64);
    }
}

/// Forward and back over the largest power of two of words that `--mib` hold. `--reversal` brings the
/// spectrum into its natural order in between, and back.
pub fn transform(args: &Args, recorder: &mut Recorder) -> Result<Outcome, WorkloadError> {
    let len = 1 << words_of(args.mib).ilog2().min(LEN_BITS_MAX);
    let value = |i| word(1, i) % P;
    let (mut words, sum) = recorder.phase("init", |progress| {
        let mut sum = 0;
        let words = filled(len, progress, |i| {
            sum = add(sum, value(i));
            value(i)
        });
        (words, sum)
    });
    let breadth = args.orders.breadth;
    recorder.phase("forward", |progress| {
        Way::Forward.transform(&mut words, breadth, progress);
    });
    expect("the sum of all", 0, words[0], sum)?;
    if args.orders.reversal {
        recorder.phase("reverse", |progress| reverse(&mut words, progress));
        recorder.phase("restore", |progress| reverse(&mut words, progress));
    }
    recorder.phase("inverse", |progress| {
        Way::Inverse.transform(&mut words, breadth, progress);
    });
    let checksum = check("check", &words, recorder, value)?;
    Ok(Outcome {
        checksum,
        verified: len as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::super::testing::args;
    use super::*;

    #[test]
    fn arithmetic_is_that_of_wide_integers() {
        let mut rng = Rng::new(3);
        let edges = [0, 1, EPSILON, 1 << 32, P - 1, P - 2, P / 2, P / 2 + 1];
        let random: Vec<u64> = (0..1000).map(|_| rng.next() % P).collect();
        let all = || edges.iter().chain(&random).copied();
        for a in all() {
            for b in all() {
                let wide = |x: u128| (x % u128::from(P)) as u64;
                assert_eq!(mul(a, b), wide(u128::from(a) * u128::from(b)), "{a} {b}");
                assert_eq!(add(a, b), wide(u128::from(a) + u128::from(b)), "{a} {b}");
                assert_eq!(add(sub(a, b), b), a, "{a} {b}");
            }
            assert_eq!(add(half(a), half(a)), a);
        }
    }

    #[test]
    fn a_forward_transform_is_the_sum_of_its_definition() {
        let input: Vec<u64> = (0..16).map(|i| word(1, i) % P).collect();
        let mut found = input.clone();
        Way::Forward.by_halves(&mut found, &Roots::new(Way::Forward), &mut |_| {});
        Recorder::new(false).phase("reverse", |p| reverse(&mut found, p));
        let root = root(16, false);
        for (k, &found) in found.iter().enumerate() {
            let term = |(i, &x): (usize, &u64)| mul(x, power(root, (i * k) as u64));
            assert_eq!(
                found,
                input.iter().enumerate().map(term).fold(0, add),
                "{k}"
            );
        }
    }

    #[test]
    fn both_orders_give_the_same() {
        let input: Vec<u64> = (0..1 << 12).map(|i| word(1, i) % P).collect();
        let (forward, inverse) = (Roots::new(Way::Forward), Roots::new(Way::Inverse));
        let (mut depth, mut breadth) = (input.clone(), input.clone());
        Way::Forward.by_halves(&mut depth, &forward, &mut |_| {});
        Way::Forward.by_stages(&mut breadth, &forward, &mut |_| {});
        assert_eq!(depth, breadth);
        assert_ne!(depth, input);
        Way::Inverse.by_stages(&mut depth, &inverse, &mut |_| {});
        Way::Inverse.by_halves(&mut breadth, &inverse, &mut |_| {});
        assert_eq!((&depth, &breadth), (&input, &input));
    }

    #[test]
    fn the_inverse_gives_every_word_back() {
        for more in ["", "--breadth", "--reversal"] {
            let args = args(&format!("fft --mib 1 {more}"));
            transform(&args, &mut Recorder::new(false)).unwrap();
        }
    }
}
