//! Placeholder smoke.
use outpage_engine::call::Call;
use outpage_engine::config::Config;
use outpage_engine::session::SessionPaths;
use outpage_engine::{Engine, Setup};

#[global_allocator]
static ARENA: outpage_sys::arena::Arena = outpage_sys::arena::Arena::new();

fn main() {
    let mut config = Config::from_process_env().unwrap().unwrap_or_else(|| Config::new(64 << 20));
    config.swap_dir = std::env::temp_dir();
    let limit = config.memory_bytes as usize;
    eprintln!("starting");
    let engine = Engine::start(Setup { config, paths: SessionPaths::default() }).unwrap();
    eprintln!("started");
    let len = limit * 2;
    let at = engine.call(Call::Mmap { addr: 0, len, prot: 3, flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS });
    eprintln!("mapped {at:#x}");
    let mem = unsafe { std::slice::from_raw_parts_mut(at as usize as *mut u64, len / 8) };
    for round in 0..3u64 {
        let t = std::time::Instant::now();
        for p in 0..len / 4096 {
            if round > 0 {
                assert_eq!(mem[p * 512], p as u64 + round - 1, "page {p}");
            }
            mem[p * 512] = p as u64 + round;
            mem[p * 512 + 511] = !(p as u64);
        }
        eprintln!("round {round}: {:?}", t.elapsed());
    }
}
