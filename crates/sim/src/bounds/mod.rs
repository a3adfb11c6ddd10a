//! The floor below which no policy can go.
