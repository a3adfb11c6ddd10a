//! What nobody knows of the papers' machines, drawn: the numbers, and what all runs of a paper draw.

use super::runs::disk_with;
use crate::programs::Spec;
use crate::seed::mix;
use crate::world::Setup;

/// Draws of an ensemble. Number 0 is none of them: it has the constants as they are written down.
pub(super) const DRAWS: std::ops::RangeInclusive<u64> = 1..=20;

/// The numbers of one draw. Each is drawn by itself: a new one changes no other.
#[derive(Clone, Copy)]
pub(super) struct Numbers(pub u64);

impl Numbers {
    fn unit(self, nth: u64) -> f64 {
        (mix(self.0, nth) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether the first of two.
    pub fn either(self, nth: u64) -> bool {
        self.unit(nth) < 0.5
    }

    /// A whole number from `from` to `to`, both included, each as likely.
    pub fn even(self, nth: u64, from: u64, to: u64) -> u64 {
        from + (self.unit(nth) * (to - from + 1) as f64) as u64
    }

    /// Even over the logarithm of a range, for what may differ by factors.
    pub fn scaled(self, nth: u64, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.unit(nth))
    }

    /// A factor within `part` of 1.
    fn around(self, nth: u64, part: f64) -> f64 {
        1.0 + part * (2.0 * self.unit(nth) - 1.0)
    }
}

/// CPU times: how far two runs of one program on one machine differ, and what was rounded to whole seconds in the papers' tables.
const CPU_PART: f64 = 0.025;
/// Frames: what a kernel and an idle system keep wired differs by a few MB from boot to boot.
const FRAMES_PART: f64 = 0.01;
/// Command overhead, by the model's: an estimate, so half of it to twice as much.
const OVERHEAD: (f64, f64) = (0.5, 2.0);
/// The first number for programs; each has [`OF_PROGRAM`].
const PROGRAMS: u64 = 16;
const OF_PROGRAM: u64 = 4;

/// The ranges, for the reports.
pub(super) const RANGES: &str = "Drawn anew for each of 20 runs of every row, and the same for what is compared: CPU times of each program within 2.5 %, \
    frames within 1 %, where the platter is when the run begins (any place of its turn), the disk's overhead a command (half of the model's to twice as \
    much), and the random numbers of programs that have any.";

/// Sets what is drawn in `setup`; nothing for draw 0. Equal draws of set-ups that differ in their policies stay comparable: nothing depends on these.
pub(super) fn draw(setup: &mut Setup, number: u64) {
    if number == 0 {
        return;
    }
    let numbers = Numbers(number);
    setup.frames = (setup.frames as f64 * numbers.around(1, FRAMES_PART)).round() as u64;
    disk_with(setup, |disk| {
        let turn_us = 60_000_000 / u64::from(disk.rpm);
        disk.phase_us = numbers.even(2, 0, turn_us - 1) as u32;
        let overhead = numbers.scaled(3, OVERHEAD.0, OVERHEAD.1);
        disk.overhead_us = (f64::from(disk.overhead_us) * overhead).round() as u32;
    });
    for (program, nth) in setup.programs.iter_mut().zip(0..) {
        let nth = PROGRAMS + OF_PROGRAM * nth;
        let cpu = numbers.around(nth, CPU_PART);
        of_program(program, numbers, nth, |ns| {
            *ns = (f64::from(*ns) * cpu).round() as u32;
        });
    }
}

/// `cpu` changes each of a program's CPU times.
fn of_program(program: &mut Spec, numbers: Numbers, nth: u64, cpu: impl Fn(&mut u32)) {
    match program {
        Spec::Sor(sor) => {
            cpu(&mut sor.init_ns);
            cpu(&mut sor.sweep_ns);
        }
        Spec::Lu(lu) => {
            cpu(&mut lu.init_ns);
            cpu(&mut lu.add_ns);
        }
        Spec::Micro(micro) => cpu(&mut micro.page_ns),
        Spec::Ns2(ns2) => {
            // Seeds are odd: the lowest bit is always set.
            ns2.seed = mix(numbers.0, nth + 1) | 1;
            cpu(&mut ns2.page_ns);
        }
        Spec::Jvm(jvm) => {
            jvm.seed = numbers.0;
            jvm.visits = numbers.even(nth + 1, VISITS.0, VISITS.1);
            cpu(&mut jvm.transaction_ns);
        }
        _ => {}
    }
}

/// How often a collection looks into a page: the values that the recording it was fitted to cannot tell apart.
pub(super) const VISITS: (u64, u64) = (2, 6);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Params, model};
    use crate::programs::{JvmParams, LuParams, Ns2Params, SorParams};
    use crate::world::DiskSpec;

    fn setup() -> Setup {
        let programs = vec![
            Spec::Ns2(Ns2Params::default()),
            Spec::Sor(SorParams::default()),
            Spec::Lu(LuParams::default()),
            Spec::Jvm(JvmParams::default()),
        ];
        Setup::bsd("6.2", "moc", 100_000, programs)
    }

    fn drawn(number: u64) -> Setup {
        let mut setup = setup();
        draw(&mut setup, number);
        setup
    }

    #[test]
    fn draw_0_is_the_set_up_itself_and_the_others_are_alike_each_time_and_differ() {
        assert_eq!(drawn(0), setup());
        for number in DRAWS {
            assert_eq!(drawn(number), drawn(number));
            assert_ne!(drawn(number), drawn(number + 1));
        }
    }

    #[test]
    fn what_is_drawn_lies_in_its_ranges_and_reaches_their_ends() {
        let Params::Rotating(known) = model("barracuda-7200.9").expect("registered").params else {
            panic!("it rotates");
        };
        let (mut low, mut high) = (u64::MAX, 0);
        let mut visits = std::collections::BTreeSet::new();
        for number in DRAWS {
            let setup = drawn(number);
            assert!((99_000..=101_000).contains(&setup.frames), "{number}");
            (low, high) = (low.min(setup.frames), high.max(setup.frames));
            let DiskSpec::Params(Params::Rotating(disk)) = setup.disk else {
                panic!("a disk that rotates");
            };
            assert!(disk.phase_us < 8_333);
            assert!((known.overhead_us / 2..=known.overhead_us * 2).contains(&disk.overhead_us));
            let Spec::Lu(lu) = setup.programs[2] else {
                panic!("the third is LU");
            };
            assert!((4_192..=4_408).contains(&lu.init_ns) && lu.init_ns == lu.add_ns);
            let Spec::Jvm(jvm) = setup.programs[3] else {
                panic!("the last is a guest");
            };
            visits.insert(jvm.visits);
        }
        assert!(low < 99_300 && high > 100_700, "{low} to {high}");
        assert_eq!(visits.first().zip(visits.last()), Some((&2, &6)));
    }
}
