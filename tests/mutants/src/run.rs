//! Runs tests with a mutant switched on.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::cargo::Program;

/// A mutant may allocate without end. In KiB of writable memory.
const MEMORY: u32 = 4_000_000;

/// How long the last lines of a program that has ended may take.
const LAST_LINES: Duration = Duration::from_millis(50);

/// A test that passes without a mutant.
#[derive(Debug)]
pub struct Test {
    /// The index of its program.
    pub program: usize,
    pub name: String,
    pub time: Duration,
    /// A byte for each mutant: 1 if the test reaches it.
    pub reached: Vec<u8>,
}

/// How a run of tests ended.
#[derive(Debug, PartialEq)]
pub enum End {
    Passed,
    /// With the name of a test that failed, if one is known.
    Failed(Option<String>),
    TimedOut,
}

impl Program {
    /// Returns the names of the tests that this program has and does not ignore.
    pub fn tests(&self) -> Result<Vec<String>, Box<dyn Error>> {
        let list = |arguments: &[&str]| -> Result<Vec<String>, Box<dyn Error>> {
            let output = Command::new(&self.path)
                .args(["--list", "--format", "terse"])
                .args(arguments)
                .current_dir(&self.folder)
                .output()?;
            let lines = String::from_utf8(output.stdout)?;
            let names = lines.lines().filter_map(|line| line.strip_suffix(": test"));
            Ok(names.map(str::to_owned).collect())
        };
        let ignored = list(&["--ignored"])?;
        let mut tests = list(&[])?;
        tests.retain(|test| !ignored.contains(test));
        Ok(tests)
    }

    /// Runs tests, until the first one fails or none ends for as long as the limit.
    pub fn run(
        &self,
        tests: &[&str],
        variable: (&str, &str),
        limit: Duration,
    ) -> Result<End, Box<dyn Error>> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // A test that is killed leaves its files. The path of a socket must be short.
        let scratch = std::env::temp_dir().join(format!(
            "audience-mutants-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&scratch)?;
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -d {MEMORY}; exec \"$@\""), "sh"])
            .arg(&self.path)
            .arg("--exact")
            .args(tests)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("RUST_TEST_THREADS", "8")
            .env("TMPDIR", &scratch)
            .env(variable.0, variable.1)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let end = watch(&mut child, limit);
        // What the tests started is in the same group, except for servers, which end when their test does.
        let kill = format!("kill -KILL -{}", child.id());
        Command::new("sh")
            .args(["-c", &kill])
            .stderr(Stdio::null())
            .status()?;
        child.wait()?;
        let _ = fs::remove_dir_all(scratch);
        end
    }
}

/// Waits for the end of a process, until a test fails, or until no test has ended for too long.
fn watch(child: &mut Child, limit: Duration) -> Result<End, Box<dyn Error>> {
    let (sender, ended) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let test = line
                .strip_prefix("test ")
                .and_then(|line| line.rsplit_once(" ... "));
            if let Some((test, outcome)) = test {
                let test = test.strip_suffix(" - should panic").unwrap_or(test);
                let failed = (outcome == "FAILED").then(|| test.to_owned());
                let _ = sender.send(failed);
            }
        }
    });
    let mut last = Instant::now();
    while last.elapsed() < limit {
        match ended.recv_timeout(Duration::from_millis(5)) {
            Ok(None) => last = Instant::now(),
            Ok(failed) => return Ok(End::Failed(failed)),
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            let failed = || {
                std::iter::from_fn(|| ended.recv_timeout(LAST_LINES).ok())
                    .flatten()
                    .next()
            };
            return Ok(match status.success() {
                true => End::Passed,
                false => End::Failed(failed()),
            });
        }
    }
    Ok(End::TimedOut)
}

/// Runs a test without a mutant, unless a former run did. Returns `None` if it does not pass within the limit.
pub fn measure(
    programs: &[Program],
    program: usize,
    name: &str,
    mutants: usize,
    folder: &Path,
    limit: Duration,
) -> Result<Option<Test>, Box<dyn Error>> {
    let path = &programs[program].path;
    let built = path
        .metadata()?
        .modified()?
        .duration_since(UNIX_EPOCH)?
        .as_nanos();
    let build = format!("{}-{built}", path.file_name().unwrap_or_default().display());
    let folder = folder.join(build);
    fs::create_dir_all(&folder)?;
    let file: PathBuf = folder.join(name.replace("::", "."));
    let too_slow = file.with_added_extension(format!("over-{}-s", limit.as_secs()));
    if too_slow.exists() {
        return Ok(None);
    }
    if !file.exists() {
        let unfinished = file.with_added_extension("unfinished");
        fs::write(&unfinished, vec![0; mutants])?;
        let start = Instant::now();
        let path = unfinished
            .to_str()
            .ok_or("the folder has no name in UTF-8")?;
        let end = programs[program].run(&[name], ("MUTANTS_REACHED", path), limit)?;
        let time = u64::try_from(start.elapsed().as_micros())?;
        match end {
            End::Passed => {
                let mut content = fs::read(&unfinished)?;
                content.extend(time.to_le_bytes());
                fs::write(&unfinished, content)?;
            }
            End::Failed(_) => fs::write(&unfinished, "")?,
            End::TimedOut => {
                fs::rename(unfinished, too_slow)?;
                return Ok(None);
            }
        }
        fs::rename(unfinished, &file)?;
    }
    let mut reached = fs::read(file)?;
    let Some(time) = reached.len().checked_sub(8).map(|at| reached.split_off(at)) else {
        return Ok(None);
    };
    let time = u64::from_le_bytes(time.try_into().map_err(|_| "eight bytes are a number")?);
    let name = name.to_owned();
    Ok(Some(Test {
        program,
        name,
        time: Duration::from_micros(time),
        reached,
    }))
}
