//! A buffer of 64 MiB in memory objects of `outpage serve --memory 16M`, of which half is scratch space: `cargo run -p outpage-client --example discard SOCKET`.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use outpage_client::{Client, Error, Share};

const PAGES: u64 = 16_384;
/// Words of a page.
const WORDS: usize = 512;

const fn content(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1
}

/// Fills the buffer and looks at it. Pages that were dropped.
pub fn run(socket: &str) -> Result<u64, Error> {
    let client = Client::connect(socket, Share::default())?;
    let object = client.create(PAGES * 4096)?;
    let word = |page: u64| &object.words()[page as usize * WORDS];
    for page in 0..PAGES {
        word(page).store(content(page), Ordering::Relaxed);
        // The second half of each 64 pages is scratch: what is in it is not needed once the 64 are done.
        if page % 64 == 63 {
            object.mark(page - 31, 32);
        }
    }
    let lost = object.take_back(0, PAGES)?;
    for page in 0..PAGES {
        let gone = lost.contains(page);
        assert!(
            !gone || page % 64 >= 32,
            "page {page} had not been given up"
        );
        let expected = if gone { 0 } else { content(page) };
        assert_eq!(word(page).load(Ordering::Relaxed), expected, "page {page}");
    }
    Ok(lost.count())
}

#[allow(dead_code)] // a test runs the rest
fn main() -> ExitCode {
    let Some(socket) = std::env::args().nth(1) else {
        eprintln!("usage: discard SOCKET");
        return ExitCode::from(64);
    };
    match run(&socket) {
        Ok(dropped) => {
            println!("{dropped} of {PAGES} pages were dropped, all others are as they were");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("discard: {error}");
            ExitCode::FAILURE
        }
    }
}
