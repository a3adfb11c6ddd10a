//! Programs as they stand in a set-up.

use serde::{Deserialize, Serialize};

use super::{
    Jvm, JvmParams, Lu, LuParams, Micro, MicroParams, Ns2, Ns2Params, Program, Sor, SorParams,
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
}

/// Names for the command line, each with its default parameters.
pub const NAMES: [&str; 5] = ["sor", "lu", "micro", "ns2", "jvm"];

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
        }
    }
}
