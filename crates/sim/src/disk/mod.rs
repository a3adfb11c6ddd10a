//! Modelled disks and their schedulers.
