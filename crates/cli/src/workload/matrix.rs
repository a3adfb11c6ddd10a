//! Matrices of doubles: SciMark2's SOR, nbench's LU `build_problem`, and small products.

use std::hint::black_box;

use super::report::{Progress, Recorder};
use super::rng::{NbenchRng, Rng, fold};
use super::{Args, Outcome};

/// Bytes of a double.
const DOUBLE: u64 = 8;
/// SciMark2's relaxation factor.
const OMEGA: f64 = 1.25;

/// The largest n whose n x n doubles fit `mib` MiB.
fn side(mib: u32) -> usize {
    ((u64::from(mib) << 20) / DOUBLE).isqrt() as usize
}

/// SciMark2's SOR on n x n doubles, each row its own allocation, filled as soon as it is allocated.
///
/// SciMark2 repeats the sweeps until a timer is satisfied; here their number is fixed, so that
/// every run does the same work.
pub fn sor(args: &Args, recorder: &mut Recorder) -> Outcome {
    let n = side(args.mib).max(3);
    let mut rng = Rng::new(101_010);
    let mut rows = recorder.phase("init", |progress| {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(n);
        for i in 0..n {
            rows.push((0..n).map(|_| rng.unit() * 1e-6).collect());
            progress.at(i as u64, n as u64);
        }
        rows
    });
    recorder.phase("sweeps", |progress| {
        let total = u64::from(args.sweeps) * n as u64;
        for sweep in 0..args.sweeps {
            for i in 1..n - 1 {
                relax_row(&mut rows, i);
                progress.at(u64::from(sweep) * n as u64 + i as u64, total);
            }
        }
    });
    check(&rows, recorder)
}

/// One row of SOR: reads the rows above and below, writes its own in place.
fn relax_row(rows: &mut [Vec<f64>], i: usize) {
    let [above, row, below] = &mut rows[i - 1..=i + 1] else {
        unreachable!("three rows")
    };
    let n = row.len();
    for j in 1..n - 1 {
        let around = above[j] + below[j] + row[j - 1] + row[j + 1];
        row[j] = OMEGA * 0.25 * around + (1.0 - OMEGA) * row[j];
    }
}

/// Reads everything once more and folds it into the checksum.
fn check(rows: &[Vec<f64>], recorder: &mut Recorder) -> Outcome {
    let checksum = recorder.phase("check", |progress| {
        let mut sum = 0;
        for (i, row) in rows.iter().enumerate() {
            sum = row.iter().fold(sum, |sum, x| fold(sum, x.to_bits()));
            progress.at(i as u64, rows.len() as u64);
        }
        sum
    });
    Outcome {
        checksum,
        verified: rows.len() as u64,
    }
}

/// nbench's LU `build_problem` on one block of n x n doubles.
///
/// The row numbers are exactly nbench's (generator, order of the draws). Two things differ unless
/// asked for: the number of additions, which in nbench takes the matrix through memory for minutes,
/// and the first contents. nbench's rows start with a single non-zero element and fill up within
/// the first part of its 8 n additions; a shortened run starts with full rows, because pages of
/// zeros cost neither the kernel nor us any I/O. `--sparse` starts as nbench does.
pub fn lu(args: &Args, recorder: &mut Recorder) -> Outcome {
    let n = side(args.mib).max(2);
    let operations = args.operations.unwrap_or(n as u64 / 2);
    let mut indices = NbenchRng::new();
    let mut values = Rng::new(7);
    let (mut a, mut b) = recorder.phase("init", |progress| {
        // Opaque, so that the compiler cannot turn "allocate, write zeros" into calloc.
        let mut a = black_box(Vec::with_capacity(n * n));
        let mut b = Vec::with_capacity(n);
        for i in 0..n {
            b.push(indices.below(100) as f64 + 1.0);
            if args.sparse {
                a.extend((0..n).map(|_| 0.0));
            } else {
                a.extend((0..n).map(|_| values.below(1000) as f64 + 1.0));
            }
            a[i * n + i] = indices.below(1000) as f64 + 1.0;
            progress.at(i as u64, n as u64);
        }
        (a, b)
    });
    recorder.phase("build", |progress| {
        for operation in 0..operations {
            let (k, k1) = (indices.below(n), indices.below(n));
            if k != k1 {
                add_row(&mut a, n, k, k1);
                b[k] += if k < k1 { b[k1] } else { -b[k1] };
            }
            progress.at(operation, operations);
        }
    });
    let checksum = recorder.phase("check", |progress| {
        let mut sum = 0;
        for (i, row) in a.chunks_exact(n).enumerate() {
            sum = row.iter().fold(sum, |sum, x| fold(sum, x.to_bits()));
            progress.at(i as u64, n as u64);
        }
        b.iter().fold(sum, |sum, x| fold(sum, x.to_bits()))
    });
    Outcome {
        checksum,
        verified: n as u64,
    }
}

/// `a[k] += a[k1]`, or minus it when `k1 < k`.
fn add_row(a: &mut [f64], n: usize, k: usize, k1: usize) {
    let (low, high) = a.split_at_mut(k.max(k1) * n);
    let (to, from, sign) = if k < k1 {
        (&mut low[k * n..][..n], &high[..n], 1.0)
    } else {
        (&mut high[..n], &low[k1 * n..][..n], -1.0)
    };
    for (x, y) in to.iter_mut().zip(from) {
        *x += y * sign;
    }
}

/// Repeated products of two matrices; the three matrices together take `--mib`.
pub fn compute(args: &Args, recorder: &mut Recorder) -> Outcome {
    let n = side((args.mib / 3).max(1)).min(512);
    // One to two seconds at 5-10 multiply-adds a nanosecond.
    let products = args
        .operations
        .unwrap_or(10_000_000_000 / (n as u64).pow(3).max(1))
        .max(1);
    let mut rng = Rng::new(11);
    let (a, mut b, mut c) = recorder.phase("init", |_| {
        let mut matrix = || {
            (0..n * n)
                .map(|_| rng.unit() / n as f64)
                .collect::<Vec<f64>>()
        };
        (matrix(), matrix(), vec![0.0; n * n])
    });
    recorder.phase("products", |progress| {
        for done in 0..products {
            product(&a, &b, &mut c, n, progress, (done, products));
            std::mem::swap(&mut b, &mut c);
        }
    });
    let checksum = recorder.phase("check", |_| {
        b.iter().fold(0, |sum, x| fold(sum, x.to_bits()))
    });
    Outcome {
        checksum,
        verified: n as u64,
    }
}

/// `c = a * b`, row by row, the inner loop along rows of `b` and `c`.
fn product(
    a: &[f64],
    b: &[f64],
    c: &mut [f64],
    n: usize,
    progress: &mut Progress,
    done: (u64, u64),
) {
    for (row_a, row_c) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        row_c.fill(1e-9);
        for (x, row_b) in row_a.iter().zip(b.chunks_exact(n)) {
            for (z, y) in row_c.iter_mut().zip(row_b) {
                *z += x * y;
            }
        }
    }
    progress.at(done.0, done.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_fills_the_footprint() {
        assert_eq!(side(512), 8192);
        assert_eq!(side(2), 512);
    }

    #[test]
    fn rows_are_added_with_nbenchs_sign() {
        let mut a = vec![1.0, 2.0, 10.0, 20.0];
        add_row(&mut a, 2, 0, 1);
        assert_eq!(a, [11.0, 22.0, 10.0, 20.0]);
        add_row(&mut a, 2, 1, 0);
        assert_eq!(a, [11.0, 22.0, -1.0, -2.0]);
    }

    #[test]
    fn sor_relaxes_the_inner_points_only() {
        let mut rows = vec![vec![1.0; 3], vec![1.0, 5.0, 1.0], vec![1.0; 3]];
        relax_row(&mut rows, 1);
        assert_eq!(rows[1], [1.0, 1.25 - 0.25 * 5.0, 1.0]);
    }
}
