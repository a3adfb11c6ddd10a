//! Programs as they stand in a set-up.

use serde::{Deserialize, Serialize};

use super::order::{Order, Ordered};
use super::{
    Column, ColumnParams, Fft, FftParams, Join, JoinParams, Jvm, JvmParams, Lu, LuParams, Merge,
    MergeParams, Micro, MicroParams, Ml, MlParams, Ns2, Ns2Params, Phases, PhasesParams, Program,
    Runs, RunsParams, Sor, SorParams, Texture, TextureParams, Transpose, TransposeParams, Zigzag,
    ZigzagParams,
};

/// A program and its parameters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "program", rename_all = "kebab-case")]
pub enum Spec {
    /// SciMark2's SOR.
    Sor(SorParams),
    /// nbench's LU.
    Lu(LuParams),
    /// The MOC paper's microbenchmark.
    Micro(MicroParams),
    /// The model of NS2.
    Ns2(Ns2Params),
    /// A guest with a Java heap.
    Jvm(JvmParams),
    /// Arrays by rows, walked by columns.
    Column(ColumnParams),
    /// A matrix written, transposed, to another one.
    Transpose(TransposeParams),
    /// A fast Fourier transform and its inverse.
    Fft(FftParams),
    /// Passes forward and back.
    Zigzag(ZigzagParams),
    /// A hash join.
    Join(JoinParams),
    /// Sorted runs, merged.
    Merge(MergeParams),
    /// Runs of random length at random places.
    Runs(RunsParams),
    /// Touches in order, at random and with a stride, by turns.
    Phases(PhasesParams),
    /// A program in ML with a copying collector.
    Ml(MlParams),
    /// Texture synthesis in two stages.
    Texture(TextureParams),
}

/// Names for the command line, each with its default parameters.
pub const NAMES: [&str; 15] = [
    "sor",
    "lu",
    "micro",
    "ns2",
    "jvm",
    "column",
    "transpose",
    "fft",
    "zigzag",
    "join",
    "merge",
    "runs",
    "phases",
    "ml",
    "texture",
];

impl Spec {
    /// The program called `name`, at its default parameters.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sor" => Self::Sor(SorParams::default()),
            "lu" => Self::Lu(LuParams::default()),
            "micro" => Self::Micro(MicroParams::default()),
            "ns2" => Self::Ns2(Ns2Params::default()),
            "jvm" => Self::Jvm(JvmParams::default()),
            "column" => Self::Column(ColumnParams::default()),
            "transpose" => Self::Transpose(TransposeParams::default()),
            "fft" => Self::Fft(FftParams::default()),
            "zigzag" => Self::Zigzag(ZigzagParams::default()),
            "join" => Self::Join(JoinParams::default()),
            "merge" => Self::Merge(MergeParams::default()),
            "runs" => Self::Runs(RunsParams::default()),
            "phases" => Self::Phases(PhasesParams::default()),
            "ml" => Self::Ml(MlParams::default()),
            "texture" => Self::Texture(TextureParams::default()),
            _ => return None,
        })
    }

    /// Makes the generator, in memory object `object`.
    #[must_use]
    pub fn build(&self, object: u32) -> Box<dyn Program> {
        match *self {
            Self::Sor(params) => Box::new(Sor::new(params, object)),
            Self::Lu(params) => Box::new(Lu::new(params, object)),
            Self::Micro(params) => Box::new(Micro::new(params, object)),
            Self::Ns2(params) => Box::new(Ns2::new(params, object)),
            Self::Jvm(params) => Box::new(Jvm::new(params, object)),
            Self::Column(params) => ordered(Column::new(params), object, params.touch_ns),
            Self::Transpose(params) => ordered(Transpose::new(params), object, params.touch_ns),
            Self::Fft(params) => ordered(Fft::new(params), object, params.touch_ns),
            Self::Zigzag(params) => ordered(Zigzag::new(params), object, params.touch_ns),
            Self::Join(params) => ordered(Join::new(params), object, params.touch_ns),
            Self::Merge(params) => ordered(Merge::new(params), object, params.touch_ns),
            Self::Runs(params) => ordered(Runs::new(params), object, params.touch_ns),
            Self::Ml(params) => Box::new(Ml::new(params, object)),
            Self::Texture(params) => Box::new(Texture::new(params, object)),
            Self::Phases(params) => ordered(Phases::new(params), object, params.touch_ns),
        }
    }
}

fn ordered(order: impl Order + 'static, object: u32, touch_ns: u32) -> Box<dyn Program> {
    Box::new(Ordered::new(order, object, touch_ns))
}
