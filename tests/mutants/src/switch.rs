
/// Returns whether a mutant is switched on. Notes which mutants were reached, one byte for each, if a file for that is named.
#[allow(dead_code, reason = "a crate without mutants does not call it")]
pub(crate) fn mutant(number: usize) -> bool {
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static ON: LazyLock<Option<usize>> =
        LazyLock::new(|| std::env::var("MUTANT_ON").ok()?.parse().ok());
    static REACHED: LazyLock<Option<(File, Vec<AtomicBool>)>> = LazyLock::new(|| {
        let path = std::env::var_os("MUTANTS_REACHED")?;
        let file = OpenOptions::new().write(true).open(path).ok()?;
        let count = file.metadata().ok()?.len();
        Some((file, (0..count).map(|_| AtomicBool::new(false)).collect()))
    });
    if let Some((file, reached)) = &*REACHED
        && !reached[number].load(Ordering::Relaxed)
    {
        reached[number].store(true, Ordering::Relaxed);
        let _ = file.write_at(&[1], number as u64);
    }
    *ON == Some(number)
}
