//! Runs the mutants of cargo-mutants with one build: all of them are in it, and an environment variable switches one on.
//!
//! cargo-mutants lists the mutants. A copy of the tree gets them all, as a mutant schema: `a == b` becomes
//! `if crate::mutant(7) { a != b } else { a == b }`. Mutants that do not compile are taken out until the copy compiles. Each
//! test runs once without a mutant, which shows the mutants it reaches. Then only the tests that reach a mutant run with it.

mod cargo;
mod rewrite;
mod run;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cargo::{Build, Fault, Program};
use rewrite::{Mutant, Rewritten};
use run::{End, Test};

const HELP: &str = "Usage: audience-mutants [--again] [--jobs N] [--longest SECONDS] [--total SECONDS] [FILTER]...\n\n\
    Tries the mutants with a FILTER in their name, such as src/webhooks, or all, unless they have a result. With --again,\n\
    tries those that survived or are open. The results are in target/mutants/results.tsv. The mutants that were caught\n\
    are in tests/mutants/caught.txt, too: commit it. They are not tried again until their file changes, but without\n\
    the two files all are.\n\
    Tests that take more than --longest (default 60) on their own do not run. For each mutant, fast tests and\n\
    those about its function run first.\n\
    A mutant is open if its tests take more than --total (default 60) together, and those that ran within it passed.";
/// Programs whose tests are about the repository, and tests that start Cargo for another target.
const LEFT_OUT: [&str; 3] = ["docs", "workspace", "wasm"];
/// The roots of the crates that include a file with mutants.
const ROOTS: [&str; 3] = [
    "src/lib.rs",
    "tests/inbox/main.rs",
    "tests/interleavings.rs",
];
/// The keys of the mutants that were caught, in the repository, so that they are not tried again on another machine.
const CAUGHT: &str = "tests/mutants/caught.txt";
/// A run ends if no test ends for this long, and eight times the time of its slowest test on its own.
const LIMIT: Duration = Duration::from_secs(10);

/// A mutant can replace a device such as /dev/full by a file, after which tests fail without a mutant.
const DEVICES_ARE_WRITABLE: &str = "the mutants could write to /dev; start this in \
    unshare --mount sh -c 'mount --rbind /dev /dev && mount -o remount,ro,bind /dev && exec \"$@\"' -";

/// The default of `--longest` and `--total`.
const SECONDS: Duration = Duration::from_secs(60);

type AnyError = Box<dyn Error>;

fn main() -> Result<(), AnyError> {
    let (mut again, mut jobs, mut longest, mut total) = (false, 2, SECONDS, SECONDS);
    let mut filters = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--again" => again = true,
            "--jobs" => jobs = arguments.next().ok_or(HELP)?.parse()?,
            "--longest" => longest = seconds(arguments.next())?,
            "--total" => total = seconds(arguments.next())?,
            option if option.starts_with('-') => return Err(HELP.into()),
            _ => filters.push(argument),
        }
    }
    let in_dev = Path::new("/dev/audience-mutants");
    if File::create(in_dev).is_ok() {
        fs::remove_file(in_dev)?;
        return Err(DEVICES_ARE_WRITABLE.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let folder = root.join("target/mutants");
    let list = Command::new("cargo")
        .args(["mutants", "--list", "--json"])
        .current_dir(&root)
        .output()?;
    let mutants: Vec<Mutant> = serde_json::from_slice(&list.stdout)?;
    println!("{} mutants", mutants.len());

    let results = Results::open(&root, &folder, &mutants)?;
    // Also of a run that was stopped.
    results.save_caught(&root)?;
    let programs = build(&root, &folder.join("tree"), &mutants, &results)?;
    let reached = folder.join("reached");
    let mut tests = measure(&programs, mutants.len(), &reached, jobs, longest)?;
    tests.retain(|test| test.time < longest);
    let mut numbers: Vec<usize> = (0..mutants.len())
        .filter(|&number| match results.of(number) {
            None => !again,
            Some(outcome) => again && ["survived", "open"].contains(&outcome.as_str()),
        })
        .filter(|&number| {
            filters.is_empty()
                || filters
                    .iter()
                    .any(|filter| mutants[number].name.contains(filter))
        })
        .collect();
    // Every part of the order is a fair sample.
    numbers.sort_by_key(|&number| hash(&mutants[number].name));
    println!("{} mutants to try", numbers.len());
    let trial = Trial {
        programs: &programs,
        tests: &tests,
        total,
        killers: Mutex::default(),
    };
    in_parallel(jobs, &numbers, |&number| {
        let (outcome, test) = trial.run(number, &mutants[number])?;
        results.add(number, outcome, &test)
    })?;
    results.print();
    results.save_caught(&root)
}

fn seconds(argument: Option<String>) -> Result<Duration, AnyError> {
    Ok(Duration::from_secs(argument.ok_or(HELP)?.parse()?))
}

/// Copies the repository with all mutants that compile, and builds its tests.
fn build(
    root: &Path,
    tree: &Path,
    mutants: &[Mutant],
    results: &Results,
) -> Result<Vec<Program>, AnyError> {
    let files = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        by_file
            .entry(&mutant.file)
            .or_default()
            .push((number, mutant));
    }
    loop {
        let mut rewritten: HashMap<&str, Rewritten> = HashMap::new();
        for file in String::from_utf8(files.stdout.clone())?.lines() {
            let Ok(mut content) = fs::read(root.join(file)) else {
                continue;
            };
            if let Some((&name, all)) = by_file.get_key_value(file) {
                let mut those = all.clone();
                // Those that were caught are not tried again, and the copy compiles faster without them.
                those.retain(|(number, _)| {
                    !results.of(*number).is_some_and(|outcome| {
                        ["caught", "unviable", "left out"].contains(&outcome.as_str())
                    })
                });
                let new = rewrite::rewrite(&String::from_utf8(content)?, &those)?;
                for (number, _) in those {
                    if !new.places.iter().any(|place| place.number == number) {
                        results.add(number, "unviable", "")?;
                    }
                }
                content = new.text.clone().into();
                rewritten.insert(name, new);
            }
            if ROOTS.contains(&file) {
                content.extend(include_bytes!("switch.rs"));
            }
            let copy = tree.join(file);
            // Cargo builds what is newer.
            if fs::read(&copy).ok().as_ref() != Some(&content) {
                fs::create_dir_all(copy.parent().unwrap_or(tree))?;
                fs::copy(root.join(file), &copy)?;
                fs::write(copy, content)?;
            }
        }
        match cargo::build(tree)? {
            Build::Done(programs) => return Ok(programs),
            Build::Failed(faults) => {
                let mut count = 0;
                for fault in faults {
                    for (number, outcome) in blame(&fault, &rewritten, mutants)? {
                        if results.of(number).is_none() {
                            results.add(number, outcome, "")?;
                            count += 1;
                        }
                    }
                }
                println!("{count} mutants do not compile");
            }
        }
    }
}

/// Returns the mutants that cause a compiler's error.
fn blame(
    faults: &[Fault],
    rewritten: &HashMap<&str, Rewritten>,
    mutants: &[Mutant],
) -> Result<Vec<(usize, &'static str)>, AnyError> {
    let outcome = |number: usize, fault: &Fault| {
        let function = mutants[number].function.as_ref();
        let is_impl = function.is_some_and(|function| function.return_type.contains("impl "));
        // cargo-mutants may compile these.
        if is_impl || fault.is_const {
            "left out"
        } else {
            "unviable"
        }
    };
    let places = |fault: &Fault| {
        // A test includes the file as `tests/../src/sync.rs`.
        let file = fault
            .file
            .rsplit("../")
            .next()
            .unwrap_or_default()
            .to_owned();
        rewritten
            .get(file.as_str())
            .map_or(&[][..], |new| &new.places)
    };
    for fault in faults {
        let own = places(fault)
            .iter()
            .filter(|place| place.own.start <= fault.start && fault.end <= place.own.end);
        if let Some(place) = own.min_by_key(|place| place.own.len()) {
            return Ok(vec![(place.number, outcome(place.number, fault))]);
        }
    }
    // The original code no longer has the type that is expected, because all branches must have one.
    for fault in faults {
        let whole = places(fault)
            .iter()
            .filter(|place| place.whole.start <= fault.start && fault.end <= place.whole.end);
        if let Some(place) = whole.min_by_key(|place| place.whole.len()) {
            return Ok(vec![(place.number, outcome(place.number, fault))]);
        }
    }
    Err(format!("no mutant causes this error:\n{}", faults[0].message).into())
}

fn measure(
    programs: &[Program],
    mutants: usize,
    folder: &Path,
    jobs: usize,
    longest: Duration,
) -> Result<Vec<Test>, AnyError> {
    let mut all = Vec::new();
    for (index, program) in programs.iter().enumerate() {
        if !LEFT_OUT.contains(&program.name.as_str()) {
            let names = program
                .tests()?
                .into_iter()
                .filter(|name| !LEFT_OUT.iter().any(|part| name.contains(part)));
            all.extend(names.map(|name| (index, name)));
        }
    }
    println!("{} tests", all.len());
    let tests = Mutex::new(Vec::new());
    // Most tests wait for a clock or a server.
    in_parallel(2 * jobs, &all, |(program, name)| {
        match run::measure(programs, *program, name, mutants, folder, longest)? {
            Some(test) => tests.lock().expect("no thread panics").push(test),
            None => println!(
                "without a mutant, this fails or takes long: {} {name}",
                programs[*program].name
            ),
        }
        Ok(())
    })?;
    let tests = tests.into_inner()?;
    println!("{} tests pass", tests.len());
    Ok(tests)
}

/// What the trials of all mutants have in common.
struct Trial<'a> {
    programs: &'a [Program],
    tests: &'a [Test],
    /// How long the tests of a mutant may take together, each on its own.
    total: Duration,
    /// The tests that caught mutants of a function, the last one first. They run before all others.
    killers: Mutex<HashMap<String, Vec<(usize, String)>>>,
}

impl Trial<'_> {
    /// Runs the tests that reach a mutant, in groups, until one fails.
    fn run(&self, number: usize, mutant: &Mutant) -> Result<(&'static str, String), AnyError> {
        let function = mutant.function.as_ref();
        let function = function.map_or("", |function| &function.function_name);
        let function = format!("{} {function}", mutant.file);
        let reaching = self.reaching(number, &function);
        let mut time = Duration::ZERO;
        let in_time = reaching.iter().take_while(|test| {
            time += test.time;
            time <= self.total
        });
        let count = in_time.count().max(1).min(reaching.len());
        let variable = number.to_string();
        let variable = ("MUTANT_ON", variable.as_str());
        let (mut rest, mut size) = (&reaching[..count], 8);
        while !rest.is_empty() {
            let (group, later) = rest.split_at(size.min(rest.len()));
            (rest, size) = (later, size * 4);
            for (index, program) in self.programs.iter().enumerate() {
                let group = group.iter().filter(|test| test.program == index);
                let slowest = group.clone().map(|test| test.time).max();
                let limit = LIMIT + slowest.unwrap_or_default() * 8;
                let mut names: Vec<&str> = group.map(|test| test.name.as_str()).collect();
                while !names.is_empty() {
                    match program.run(&names, variable, limit)? {
                        End::Passed => break,
                        End::TimedOut => {
                            return Ok((
                                "timeout",
                                format!("{} {}", program.name, names.join(" ")),
                            ));
                        }
                        // A busy machine may make a test fail, but seldom again on its own.
                        End::Failed(Some(test))
                            if program.run(&[&test], variable, limit)? == End::Passed =>
                        {
                            names.retain(|name| *name != test);
                        }
                        End::Failed(test) => {
                            let test = test.unwrap_or_default();
                            let caught = format!("{} {test}", program.name);
                            self.note_killer(function, (index, test));
                            return Ok(("caught", caught));
                        }
                    }
                }
            }
        }
        let outcome = match count == reaching.len() {
            true => "survived",
            false => "open",
        };
        Ok((outcome, format!("{count} of {} tests", reaching.len())))
    }

    /// Returns the tests that reach a mutant, in the order in which they run.
    fn reaching(&self, number: usize, function: &str) -> Vec<&Test> {
        let mut reaching: Vec<&Test> = self
            .tests
            .iter()
            .filter(|test| test.reached.get(number) == Some(&1))
            .collect();
        let (all, of_mutant) = (
            self.killers.lock().expect("no thread panics"),
            words(function),
        );
        let killers = all.get(function).map_or(&[][..], Vec::as_slice);
        reaching.sort_by_cached_key(|test| {
            let place = killers
                .iter()
                .position(|(program, name)| test.program == *program && test.name == *name);
            // A test about the file or the function fails more likely than another one, so it may be slower.
            let own = words(&format!(
                "{} {}",
                self.programs[test.program].name, test.name
            ));
            let shared = own.intersection(&of_mutant).count().min(8);
            let time = test.time.as_micros() >> (2 * shared);
            (place.unwrap_or(killers.len()), time)
        });
        reaching
    }

    fn note_killer(&self, function: String, killer: (usize, String)) {
        let mut killers = self.killers.lock().expect("no thread panics");
        let killers = killers.entry(function).or_default();
        killers.retain(|other| *other != killer);
        killers.insert(0, killer);
    }
}

/// Returns the words of a name that say something, in lowercase.
fn words(name: &str) -> HashSet<String> {
    let words = name.split(|character: char| !character.is_alphanumeric());
    let words = words.filter(|word| word.len() > 3);
    words.map(str::to_lowercase).collect()
}

/// The outcome of each mutant, in a file, so that a run can be stopped and continued.
struct Results<'a> {
    mutants: &'a [Mutant],
    /// A hash of the mutant and its function: an outcome holds until the function changes.
    keys: Vec<String>,
    outcomes: Mutex<HashMap<String, String>>,
    file: Mutex<File>,
}

impl<'a> Results<'a> {
    fn open(root: &Path, folder: &Path, mutants: &'a [Mutant]) -> Result<Self, AnyError> {
        fs::create_dir_all(folder)?;
        let path: PathBuf = folder.join("results.tsv");
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut outcomes = HashMap::new();
        for key in fs::read_to_string(root.join(CAUGHT))
            .unwrap_or_default()
            .lines()
        {
            outcomes.insert(key.to_owned(), "caught".to_owned());
        }
        for line in fs::read_to_string(path)?.lines() {
            let mut parts = line.split('\t').map(str::to_owned);
            if let (Some(key), Some(outcome)) = (parts.next(), parts.next()) {
                outcomes.insert(key, outcome);
            }
        }
        let mut texts = HashMap::new();
        let keys = mutants.iter().map(|mutant| {
            let text = texts
                .entry(&mutant.file)
                .or_insert_with(|| without_tests(&root.join(&mutant.file)).unwrap_or_default());
            format!("{:016x}", hash(&mutant.identity(text)))
        });
        Ok(Self {
            mutants,
            keys: keys.collect(),
            outcomes: Mutex::new(outcomes),
            file: Mutex::new(file),
        })
    }

    fn of(&self, number: usize) -> Option<String> {
        self.outcomes
            .lock()
            .expect("no thread panics")
            .get(&self.keys[number])
            .cloned()
    }

    fn add(&self, number: usize, outcome: &str, test: &str) -> Result<(), AnyError> {
        let key = &self.keys[number];
        let line = format!(
            "{key}\t{outcome}\t{}\t{test}\n",
            self.mutants[number].name.replace(['\n', '\t'], " ")
        );
        self.file
            .lock()
            .expect("no thread panics")
            .write_all(line.as_bytes())?;
        self.outcomes
            .lock()
            .expect("no thread panics")
            .insert(key.clone(), outcome.to_owned());
        Ok(())
    }

    /// Writes the file with the mutants that were caught, without those that do not exist any more.
    fn save_caught(&self, root: &Path) -> Result<(), AnyError> {
        let outcomes = self.outcomes.lock().expect("no thread panics");
        let is_caught = |key: &&String| {
            let outcome = outcomes.get(*key).map(String::as_str);
            outcome == Some("caught")
        };
        let mut caught: Vec<&str> = self
            .keys
            .iter()
            .filter(is_caught)
            .map(String::as_str)
            .collect();
        caught.sort_unstable();
        caught.dedup();
        let lines: String = caught.iter().map(|key| format!("{key}\n")).collect();
        fs::write(root.join(CAUGHT), lines)?;
        Ok(())
    }

    /// Prints the mutants that no test caught, and how many of each area had which outcome.
    fn print(&self) {
        const OUTCOMES: [&str; 7] = [
            "caught",
            "timeout",
            "survived",
            "open",
            "unviable",
            "left out",
            "not tried",
        ];
        let mut areas: BTreeMap<&str, [usize; 7]> = BTreeMap::new();
        for (number, mutant) in self.mutants.iter().enumerate() {
            let outcome = self.of(number).unwrap_or_default();
            let index = OUTCOMES
                .iter()
                .position(|name| *name == outcome)
                .unwrap_or(6);
            let area = mutant.file.split('/').nth(1).unwrap_or_default();
            areas.entry(area).or_default()[index] += 1;
            areas.entry("~ all").or_default()[index] += 1;
            if ["survived", "open"].contains(&outcome.as_str()) {
                println!("{outcome}: {}", mutant.name);
            }
        }
        println!(
            "{:14} {}    caught of all tried",
            "",
            OUTCOMES.map(|name| format!("{name:>10}")).concat()
        );
        for (area, counts) in areas {
            let (caught, tried) = (counts[0] + counts[1], counts[..4].iter().sum::<usize>());
            println!(
                "{area:14} {}{:21.1} %",
                counts.map(|count| format!("{count:10}")).concat(),
                100.0 * caught as f64 / tried.max(1) as f64
            );
        }
    }
}

/// Returns the text of a file before its tests.
fn without_tests(file: &Path) -> Option<String> {
    let mut text = fs::read_to_string(file).ok()?;
    if let Some(tests) = text.find("\n#[cfg(test)]\nmod tests {") {
        text.truncate(tests);
    }
    Some(text)
}

/// Calls a function with each item, in several threads. Returns the first error.
fn in_parallel<T: Sync>(
    threads: usize,
    items: &[T],
    call: impl Fn(&T) -> Result<(), AnyError> + Sync,
) -> Result<(), AnyError> {
    let (next, started) = (AtomicUsize::new(0), Instant::now());
    let error = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failed) = call(item) {
                        *error.lock().expect("no thread panics") = Some(failed.to_string());
                        next.store(items.len(), Ordering::Relaxed);
                    }
                    let done = next.load(Ordering::Relaxed);
                    if done.is_multiple_of(100) {
                        println!(
                            "{done} of {} after {} s",
                            items.len(),
                            started.elapsed().as_secs()
                        );
                    }
                }
            });
        }
    });
    error
        .into_inner()?
        .map_or(Ok(()), |error| Err(error.into()))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
