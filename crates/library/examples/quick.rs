//! The quick start of README, which a test compares with it.
#![forbid(unsafe_code)]

use outpage::Pager;

fn main() -> Result<(), outpage::Error> {
    let pager = Pager::new(64 << 20)?; // 64 MiB of RAM
    let mut values = pager.zeros::<u64>(24 << 20)?; // 192 MiB
    for (i, value) in values.iter_mut().enumerate() {
        *value = i as u64;
    }
    values.reverse();
    println!("{} {}", values[0], pager.stats()?);
    Ok(())
}
