//! The command `audience import`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use audience::mock::{Fault, MockServer};

use super::refused_batch;
use support::examples::program;

/// A folder of its own for a test.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        // Not the process id: it comes again, and a run that was killed has left its files.
        let name = format!("audience-import-csv-{:016x}-{name}", fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn command(server: Option<&MockServer>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("audience"));
    command.arg("import").args(arguments);
    for variable in ["AUDIENCE_URL", "AUDIENCE_KEY", "AUDIENCE_KEY_FILE"] {
        command.env_remove(variable);
    }
    if let Some(server) = server {
        command.arg("--yes");
        command.env("AUDIENCE_URL", server.url());
        command.env("AUDIENCE_KEY", server.full_key());
    } else {
        command.arg("--mock");
    }
    command
}

pub(super) fn run(server: Option<&MockServer>, arguments: &[&str]) -> Output {
    command(server, arguments).output().unwrap()
}

pub(super) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(super) fn last_line(output: &Output) -> String {
    stdout(output).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_columns_are_shown_first_and_the_summary_last() {
    let folder = Folder::new("summary");
    let rows: String = (0..2_000).map(|n| format!("a{n}@x.io,A{n}\n")).collect();
    let large = folder.file("large.csv", &format!("email,first_name\n{rows}"));
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/contacts.csv");
    for (file, summary) in [
        (
            sample,
            "5 created, 1 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown",
        ),
        (
            &large,
            "2000 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown",
        ),
    ] {
        let output = run(None, &[file]);

        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(last_line(&output), summary);
        let stdout = stdout(&output);
        let columns = stdout.find("first_name").unwrap();
        assert!(columns < stdout.find("created").unwrap(), "{stdout}");
    }
}

#[test]
fn a_column_that_is_neither_mapped_nor_known_is_refused_if_the_command_says_so() {
    let folder = Folder::new("refuse-unmapped");
    let one = folder.file("one.csv", "email,Weekly Hints\nada@x.io,no\n");
    let two = folder.file("two.csv", "email,Weekly Hints\nbob@x.io,no\n");
    for files in [&[&*one][..], &[&*one, &*two]] {
        let refused = run(None, &[files, &["--refuse-unmapped"]].concat());
        let map = ["--map", "Weekly Hints=property:hints", "--refuse-unmapped"];
        let mapped = run(None, &[files, &map].concat());

        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(
            text.contains("not mapped, and their names are not known: [\"Weekly Hints\"]"),
            "{text}"
        );
        assert_eq!(refused.status.code(), Some(1));
        assert!(mapped.status.success(), "{mapped:?}");
    }
}

#[test]
fn a_trial_on_a_mock_with_a_seed_file_finds_a_misspelled_topic() {
    let folder = Folder::new("trial-topics");
    let list = folder.file("list.csv", "email,News\nada@x.io,no\n");
    let seed = folder.file("seed.json", r#"{"topics": {"news": true}}"#);
    let trial = |mock: &str, topic: &str| {
        let map = format!("News=topic:{topic}");
        let arguments = ["import", &list, "--map", &map, "--yes", mock];
        let mut command = Command::new(program("audience"));
        command.args(arguments).output().unwrap()
    };

    let codes = [("news", Some(0)), ("newz", Some(1))];
    for (topic, code) in codes {
        let ended = trial(&format!("--mock={seed}"), topic);
        assert_eq!(ended.status.code(), code, "{topic}: {ended:?}");
    }
    // The contacts of a trial are gone, so the advice is not to import the rejects only.
    let rejects = folder.path("trial.csv");
    let mock = format!("--mock={seed}");
    let arguments = ["--map", "News=topic:newz", "--rejects", &rejects, "--yes"];
    let ended = Command::new(program("audience"))
        .args(["import", &list, &mock])
        .args(arguments)
        .output();
    let said = stdout(&ended.unwrap());
    let advice = format!("\nfix these rows before the import; {rejects} says what is wrong\n");
    assert!(
        said.contains("correct a misspelled topic in --map"),
        "{said}"
    );
    assert!(
        said.contains(&advice) && !said.contains("import that file"),
        "{said}"
    );
    // Without a seed file, nobody knows which topics there are.
    let ended = trial("--mock", "newz");
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn of_several_files_the_one_in_which_everybody_opted_out_comes_first() {
    let folder = Folder::new("several");
    let server = MockServer::builder().topic("news", true);
    let server = server.start_blocking();
    let subscribed = "Email Address,Hints,LEID,EUID\nada@x.io,no,1,a\nnobody,yes,2,b\n";
    let files = [
        folder.file("subscribed.csv", subscribed),
        folder.file(
            "unsubscribed.csv",
            "Email Address,UNSUB_TIME,LEID,EUID\nbob@x.io,2024,3,c\n",
        ),
    ];
    let rejects = folder.path("rejects");
    // The second file does not have the column.
    let map = ["--map", "Hints=topic:news"];
    let arguments = [&files[0], &files[1], map[0], map[1], "--rejects", &rejects];
    let refused = run(Some(&server), &arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(server.requests().is_empty());
    std::fs::create_dir(&rejects).unwrap();

    let output = run(Some(&server), &arguments);

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let summary = "2 created, 0 updated, 0 skipped, 1 refused, 0 not sent, 0 unknown";
    assert_eq!(last_line(&output), summary);
    let first = String::from_utf8_lossy(&server.requests()[0].body).into_owned();
    assert!(
        first.contains("bob@x.io") && !first.contains("ada@x.io"),
        "{first}"
    );
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
    let ada = server.contact("ada@x.io").unwrap();
    assert!(!ada.unsubscribed && !ada.answers["news"], "{ada:?}");
    let text = std::fs::read_to_string(Path::new(&rejects).join("subscribed.csv")).unwrap();
    assert!(text.contains("nobody"), "{text}");
    for file in &files {
        assert!(Path::new(&format!("{file}.journal")).exists());
    }
    server.clear_requests();
    let again = run(Some(&server), &[&arguments[..], &["--resume"]].concat());
    assert_eq!(
        (again.status.code(), last_line(&again)),
        (Some(3), summary.to_owned())
    );
    assert!(server.requests().is_empty());
}

#[cfg(unix)]
#[test]
fn a_file_that_is_given_twice_is_refused_under_whatever_name() {
    let folder = Folder::new("several-twice");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("a.csv", "email\na@x.io\n");
    let link = folder.path("link.csv");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let dotted = file.replace("a.csv", "./a.csv");

    for other in [&file, &dotted, &link] {
        let output = run(Some(&server), &[&file, other]);

        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains(&format!("{other} is given twice")),
            "{stderr}"
        );
    }
    assert!(server.requests().is_empty());
}

#[cfg(unix)]
#[test]
fn a_pipe_cannot_be_one_of_several_files() {
    let folder = Folder::new("several-pipe");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("a.csv", "email\na@x.io\n");
    for files in [[&*file, "/dev/stdin"], ["/dev/stdin", &file]] {
        let output = command(Some(&server), &files)
            .stdin(Stdio::piped())
            .output()
            .unwrap();

        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let said = "/dev/stdin is not a regular file, so it cannot be one of several files";
        assert!(stderr.contains(said), "{stderr}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn an_import_that_changes_more_than_one_contact_in_all_its_files_needs_a_yes() {
    let folder = Folder::new("question");
    let server = MockServer::builder().start_blocking();
    let files = [
        folder.file("a.csv", "email\na@x.io\n"),
        folder.file("b.csv", "email\nb@x.io\n"),
    ];

    let refused = without_yes(&server, &files);

    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let question = "this would change 2 contacts at";
    assert!(String::from_utf8_lossy(&refused.stderr).contains(question));
    assert!(server.requests().is_empty());
    let one = without_yes(&server, &files[..1]);
    assert_eq!(one.status.code(), Some(0), "{one:?}");
}

/// Runs an import that would ask, without a terminal to ask on.
fn without_yes(server: &MockServer, arguments: &[String]) -> Output {
    let mut import = Command::new(program("audience"));
    import.arg("import").args(arguments);
    import.env_remove("AUDIENCE_KEY_FILE");
    import.env("AUDIENCE_URL", server.url());
    import.env("AUDIENCE_KEY", server.full_key());
    import.output().unwrap()
}

#[test]
fn the_question_says_how_many_rows_of_all_files_opt_people_out_of_everything() {
    let folder = Folder::new("question-opt-outs");
    let server = MockServer::builder().start_blocking();
    let list = "email,Out,topic:news\na@x.io,yes,no\nb@x.io,no,no\nc@x.io,no,yes\n";
    let list = folder.file("list.csv", list);
    let blocked = folder.file("blocked.csv", "email\nd@x.io\ne@x.io\n");
    let map = ["--map", "Out=unsubscribed"].map(str::to_owned).to_vec();
    let all = format!("--opt-out-all={blocked}");
    let arguments = [vec![list, blocked, all], map].concat();

    let refused = without_yes(&server, &arguments);

    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    let (_, question) = stderr
        .split_once("this would change 5 contacts at ")
        .unwrap();
    let opt_outs = ", and opt 3 of them out of everything; pass --yes";
    assert!(question.contains(opt_outs), "{stderr}");
    assert!(server.requests().is_empty());
}

#[test]
fn of_several_files_only_those_that_the_option_names_are_opted_out_as_a_whole() {
    let folder = Folder::new("opt-out-all");
    let server = MockServer::builder().start_blocking();
    let header = "EMAIL,ADDED_TIME,MODIFIED_TIME\n";
    let contacts = folder.file("contacts.csv", &format!("{header}ada@x.io,2024,2024\n"));
    let blocked = folder.file("blocklisted.csv", &format!("{header}bob@x.io,2024,2024\n"));
    let named = format!("--opt-out-all={blocked}");
    let other = folder.path("other.csv");
    let of_another = format!("--opt-out-all={other}");

    for (option, code, reason) in [
        (None, 1, format!("{blocked}: the name of the file says")),
        (None, 1, "(in the program: `--opt-out-all=FILE`)".to_owned()),
        (
            Some("--opt-out-all"),
            2,
            "write --opt-out-all=FILE for each file".to_owned(),
        ),
        (
            Some(of_another.as_str()),
            2,
            format!("{other} is not one of the files to import ({contacts}, {blocked})"),
        ),
    ] {
        let mut arguments = vec![contacts.as_str(), &blocked];
        arguments.extend(option);
        let refused = run(Some(&server), &arguments);

        assert_eq!(refused.status.code(), Some(code), "{refused:?}");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(stderr.contains(&reason), "{stderr}");
    }
    assert!(server.requests().is_empty());

    let output = run(Some(&server), &[&contacts, &blocked, &named]);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!server.contact("ada@x.io").unwrap().unsubscribed);
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
}

#[test]
fn the_option_that_opts_out_a_whole_file_needs_no_name_if_there_is_one_file() {
    let folder = Folder::new("opt-out-all-one");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("bounces.csv", "email\nada@x.io\n");

    let output = run(Some(&server), &["--opt-out-all", &file]);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
}

#[test]
fn a_file_of_people_who_bounced_is_imported_as_the_refusal_says_whatever_its_name() {
    let folder = Folder::new("opt-out-all-cleaned");
    let server = MockServer::builder().start_blocking();
    let text = "Email Address,OPTIN_TIME,CLEAN_TIME\nada@x.io,2024-01-01,2024-03-01\n";
    let file = folder.file("a.csv", text);
    let ignored = ["OPTIN_TIME=ignore", "CLEAN_TIME=ignore"];
    let all = format!("--opt-out-all={file}");

    let refused = run(
        Some(&server),
        &[&file, "--map", ignored[0], "--map", ignored[1]],
    );

    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    let said = "[\"CLEAN_TIME\"]; call `opt_out_all` (in the program: `--opt-out-all=FILE`)";
    assert!(stderr.contains(said), "{stderr}");
    assert!(server.requests().is_empty());
    let output = run(Some(&server), &[&file, &all]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(server.contact("ada@x.io").unwrap().unsubscribed);
}

#[test]
fn the_advice_for_rejects_of_a_file_that_is_opted_out_as_a_whole_can_be_followed() {
    let folder = Folder::new("opt-out-all-rejects");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("bounces.csv", "email\nada@x.io\nnobody\n");
    let (rejects, other) = (folder.path("rejects.csv"), folder.path("other.csv"));
    let all = format!("--opt-out-all={file}");

    let output = run(Some(&server), &[&file, &all, "--rejects", &rejects]);

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let advice = "with the same options, but other --rejects, and without --opt-out-all: that file has the opt-outs\n";
    assert!(stdout(&output).contains(advice), "{output:?}");
    let mended = std::fs::read_to_string(&rejects).unwrap();
    std::fs::write(&rejects, mended.replace("nobody", "bob@x.io")).unwrap();
    let again = run(Some(&server), &[&rejects, "--rejects", &other]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
}

#[test]
fn the_question_for_a_pipe_that_is_opted_out_as_a_whole_says_so() {
    let folder = Folder::new("opt-out-all-pipe");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("list.csv", "email\nada@x.io\nbob@x.io\n");

    for (arguments, opt_outs) in [
        (
            &["-", "--opt-out-all"][..],
            ", and opt all of them out of everything; pass",
        ),
        (&["-"], "; pass"),
    ] {
        let mut import = Command::new(program("audience"));
        import.arg("import").args(arguments);
        import.env_remove("AUDIENCE_KEY_FILE");
        import.env("AUDIENCE_URL", server.url());
        import.env("AUDIENCE_KEY", server.full_key());
        import.stdin(std::fs::File::open(&file).unwrap());
        let refused = import.output().unwrap();

        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        let question = format!("change an unknown number of contacts at {}", server.url());
        let (_, rest) = stderr.split_once(&question).unwrap();
        assert!(rest.starts_with(opt_outs), "{stderr}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn an_empty_name_of_a_file_to_opt_out_is_refused_and_nobody_is_opted_out() {
    let folder = Folder::new("opt-out-all-empty");
    let server = MockServer::builder().start_blocking();
    let files = [
        folder.file("a.csv", "email\na@x.io\n"),
        folder.file("b.csv", "email\nb@x.io\n"),
    ];

    for files in [&files[..1], &files[..]] {
        let files = files.iter().map(String::as_str);
        let arguments: Vec<_> = files.chain(["--opt-out-all="]).collect();
        let output = run(Some(&server), &arguments);

        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("--opt-out-all= names no file"), "{stderr}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_missing_file_to_opt_out_is_said_to_be_missing_under_whatever_name() {
    let folder = Folder::new("opt-out-all-missing");
    let file = folder.path("nope.csv");
    let other_name = format!("--opt-out-all={}", folder.path("x/../nope.csv"));

    let output = run(None, &[&file, &other_name]);

    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = format!("{file}: there is no such file");
    assert!(stderr.contains(&reason), "{stderr}");
}

#[test]
fn after_an_unclosed_quote_the_advice_is_to_close_it_and_to_continue() {
    let folder = Folder::new("unclosed");
    let server = MockServer::builder().start_blocking();
    let text = "email,first_name\na@x.io,Ada\nb@x.io,\"Bob\nc@x.io,Cy\n";
    let file = folder.file("list.csv", text);
    let rejects = folder.path("rejects.csv");
    let arguments = [&file[..], "--rejects", &rejects];

    let output = run(Some(&server), &arguments);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = "line 3: a quote in this row is not closed";
    assert!(stderr.contains(reason), "{stderr}");
    assert_eq!(stderr.matches("could not be read").count(), 1, "{stderr}");
    assert!(stderr.contains("; to continue: "), "{stderr}");
    assert!(stderr.ends_with(" --resume\n"), "{stderr}");
    assert!(!stderr.contains("start again"), "{stderr}");
    assert!(!stdout(&output).contains("fix the rows"), "{output:?}");
    let same = run(Some(&server), &arguments);
    let stderr = String::from_utf8_lossy(&same.stderr);
    let advice = "add --resume to continue it, also after you have closed a quote in FILE";
    assert!(stderr.contains(advice), "{stderr}");
    let advice = "; if you changed other rows, import only these from another file; to send all rows again, which also \
                  undoes opt-ins made since, delete the journal";
    assert!(stderr.contains(advice), "{stderr}");

    folder.file("list.csv", &text.replace("\"Bob", "Bob"));
    let continued = run(Some(&server), &[&arguments[..], &["--resume"]].concat());

    assert_eq!(continued.status.code(), Some(0), "{continued:?}");
    assert_eq!(server.contact_count(), 3);
}

#[test]
fn the_rejects_of_a_file_with_an_unclosed_quote_are_not_taken_for_the_rest_of_the_list() {
    let folder = Folder::new("unclosed-rejects");
    let server = MockServer::builder().start_blocking();
    let text = "email,first_name\nnobody,Ada\nd@x.io,Di\nb@x.io,\"Bob\nc@x.io,Cy\n";
    let file = folder.file("list.csv", text);
    let (rejects, again) = (folder.path("rejects.csv"), folder.path("again.csv"));
    run(Some(&server), &[&file, "--rejects", &rejects]);
    let mended = std::fs::read_to_string(&rejects).unwrap();
    let mended = folder.file("mended.csv", &mended.replace("nobody", "a@x.io"));

    let output = run(Some(&server), &[&mended, "--rejects", &again]);
    // Its own rejects have the row, too.
    let of_rejects = run(Some(&server), &[&again]);

    assert!(server.contact("a@x.io").is_some());
    for output in [output, of_rejects] {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let reason = "the rest of the original file was not read";
        assert!(stderr.contains(reason), "{stderr}");
        assert!(!stderr.contains("to continue"), "{stderr}");
    }

    // Somebody writes the cells of this row into it, but not the row that was after it.
    let text = std::fs::read_to_string(&rejects).unwrap();
    let row = text.lines().last().unwrap();
    assert!(row.starts_with("4,") && row.ends_with(",false"), "{row}");
    let filled = text.replace(row, &format!("{row},b@x.io,Bob"));
    let filled = folder.file("filled.csv", &filled.replace("nobody", "a@x.io"));

    let output = run(Some(&server), &[&filled]);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // It is the third line of the rejects, and the fourth one of the list.
    let reason = "line 3: the rest of the original file was not read, because of this row; fix the original file at the \
                  line that the column `line` of this row names";
    assert!(stderr.contains(reason), "{stderr}");
    assert!(server.contact("b@x.io").is_none());
}

#[test]
fn after_an_unclosed_quote_in_corrected_rejects_the_advice_is_to_continue() {
    let folder = Folder::new("unclosed-corrected");
    let server = MockServer::builder().start_blocking();
    let header = "line,code,message,retryable,email,first_name\n";
    let start = "validation_error,the address is invalid,false";
    let text = format!("{header}2,{start},a@x.io,Ada\n3,{start},b@x.io,\"Bob\n");
    let corrected = folder.file("corrected.csv", &text);

    let output = run(Some(&server), &[&corrected]);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = "line 3: a quote in this row is not closed";
    assert!(stderr.contains(reason), "{stderr}");
    assert!(stderr.contains("; to continue: "), "{stderr}");
    let corrected = folder.file("corrected.csv", &text.replace("\"Bob", "Bob"));
    let continued = run(Some(&server), &[&corrected, "--resume"]);
    assert_eq!(continued.status.code(), Some(0), "{continued:?}");
    assert_eq!(server.contact_count(), 2);

    // Other rejects do not change the advice for a list.
    let list = folder.file("list.csv", "email,first_name\nc@x.io,Cy\nd@x.io,\"Di\n");
    let output = run(Some(&server), &[&corrected, &list, "--resume"]);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("; to continue: "), "{stderr}");
}

#[test]
fn if_one_of_several_files_is_not_finished_the_next_one_is_not_sent() {
    let folder = Folder::new("several-stop");
    let server = MockServer::builder().start_blocking();
    let files = [
        folder.file("subscribed.csv", "Email Address,LEID,EUID\nada@x.io,1,a\n"),
        folder.file(
            "cleaned.csv",
            "Email Address,CLEAN_TIME,LEID,EUID\nbob@x.io,2024,3,c\n",
        ),
    ];
    server.fault(Fault::status(501).path("/contacts/*/unsubscribe"));
    let arguments = [files[0].as_str(), &files[1]];

    let output = run(Some(&server), &arguments);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(server.contact("ada@x.io").is_none());
    server.clear_faults();
    let output = run(Some(&server), &[&arguments[..], &["--resume"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(server.contact_count(), 2);
}

#[test]
fn if_a_row_of_those_who_opted_out_is_refused_nobody_is_created_as_subscribed() {
    let folder = Folder::new("several-refused");
    let server = MockServer::builder().start_blocking();
    let subscribed = "Email Address,LEID,EUID\nada@x.io,1,a\nbob@x.io,2,b\nnobody,4,d\n";
    let unsubscribed = "Email Address,UNSUB_TIME,LEID,EUID\n\"bob\"@x.io,2024,2,b\n";
    let cleaned = "Email Address,CLEAN_TIME,LEID,EUID\ncy@x.io,2024,3,c\n";
    let files = [
        folder.file("subscribed.csv", subscribed),
        folder.file("unsubscribed.csv", unsubscribed),
        folder.file("cleaned.csv", cleaned),
    ];
    let arguments = [files[0].as_str(), &files[1], &files[2]];

    let dry = run(None, &[&arguments[..], &["--dry-run"]].concat());
    let output = run(Some(&server), &arguments);

    let in_all = "1 rows would be sent, 0 of them duplicates, and 2 would be refused";
    assert!(last_line(&dry).contains(in_all), "{dry:?}");
    assert_eq!(dry.status.code(), Some(1), "{dry:?}");
    let stderr = String::from_utf8_lossy(&dry.stderr);
    let said = format!("are not sent: {}; fix these rows", files[0]);
    let before = format!("{said} before the import\n");
    assert!(stderr.contains(&before), "{stderr}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&said), "{stderr}");
    // Other opt-outs do no harm.
    assert!(server.contact("cy@x.io").unwrap().unsubscribed);
    assert_eq!(server.contact_count(), 1);
    let corrected = folder.file("corrected.csv", &unsubscribed.replace('"', ""));
    for (file, code) in [(&corrected, 0), (&files[0], 3)] {
        let output = run(Some(&server), &[file]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
    assert!(!server.contact("ada@x.io").unwrap().unsubscribed);
}

#[test]
fn the_printed_command_imports_corrected_rejects_in_place_of_their_file_and_the_files_that_were_not_sent()
 {
    let folder = Folder::new("several-corrected");
    let server = MockServer::builder().topic("news", true);
    let server = server.start_blocking();
    // Only the file with a refused row has the mapped column.
    let unsubscribed =
        "Email Address,Hints,UNSUB_TIME,LEID,EUID\nbob@x.io,yes,2024,2,b\nnobody,no,2024,1,a\n";
    let files = [
        folder.file(
            "subscribed.csv",
            "Email Address,LEID,EUID\nada@x.io,1,a\nbob@x.io,2,b\n",
        ),
        folder.file("unsubscribed.csv", unsubscribed),
        folder.file(
            "cleaned.csv",
            "Email Address,CLEAN_TIME,LEID,EUID\ncy@x.io,2024,3,c\n",
        ),
    ];
    let (rejects, corrected) = (folder.path("rejects"), folder.path("corrected"));
    std::fs::create_dir(&rejects).unwrap();
    let mut arguments: Vec<&str> = files.iter().map(String::as_str).collect();
    arguments.extend(["--map", "Hints=topic:news", "--rejects", &rejects]);

    let first = run(Some(&server), &arguments);

    assert_eq!(first.status.code(), Some(1), "{first:?}");
    let recipe = format!(
        "\nrename {rejects} to {corrected}, fix the rows in it (delete those that cannot be fixed, but not the first line), \
         create an empty folder {rejects}, and run: "
    );
    let stdout = stdout(&first);
    let (_, command) = stdout.split_once(&recipe).unwrap();
    let command = command.lines().next().unwrap();
    let end = format!(" --resume --corrected {corrected}");
    assert!(command.ends_with(&end), "{command}");
    std::fs::rename(&rejects, &corrected).unwrap();
    std::fs::create_dir(&rejects).unwrap();
    let path = Path::new(&corrected).join("unsubscribed.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("nobody", "ada@x.io")).unwrap();
    // The program, `import`, and what `run` adds.
    let words = command.split_whitespace().skip(2);
    let words: Vec<&str> = words.filter(|word| *word != "--yes").collect();
    let second = run(Some(&server), &words);

    assert_eq!(second.status.code(), Some(0), "{second:?}");
    assert_eq!(
        last_line(&second),
        "2 created, 2 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown"
    );
    let ada = server.contact("ada@x.io").unwrap();
    assert!(ada.unsubscribed && !ada.answers["news"], "{ada:?}");
    assert!(server.contact("bob@x.io").unwrap().unsubscribed);
    assert_eq!(server.contact_count(), 3);
    let mut verify: Vec<&str> = files.iter().map(String::as_str).collect();
    verify.extend(["--map", "Hints=topic:news", "--verify"]);
    let originals = run(Some(&server), &verify);
    verify.extend(["--corrected", &corrected]);
    let whole = run(Some(&server), &verify);
    assert_eq!(originals.status.code(), Some(3), "{originals:?}");
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    assert_eq!(
        last_line(&whole),
        "opt-outs recorded for 3 rows, missing for 0; 2 rows without opt-outs have a contact, 0 invalid or without a contact, \
         0 not verified"
    );
}

#[test]
fn the_advice_names_a_folder_whose_name_comes_after_those_of_the_corrected_rejects() {
    let folder = Folder::new("several-again");
    let server = MockServer::builder().start_blocking();
    let files = [
        folder.file("a.csv", "email\nada@x.io\n"),
        folder.file("b.csv", "email\nbob@x.io\nnobody\n"),
    ];
    let (rejects, corrected) = (folder.path("rejects"), folder.path("corrected-1"));
    std::fs::create_dir(&rejects).unwrap();
    let arguments = [files[0].as_str(), &files[1], "--rejects", &rejects];
    let first = run(Some(&server), &arguments);
    assert_eq!(first.status.code(), Some(3), "{first:?}");
    std::fs::rename(&rejects, &corrected).unwrap();
    std::fs::create_dir(&rejects).unwrap();
    let again = [&arguments[..], &["--resume", "--corrected", &corrected]].concat();

    // The row is still not fixed.
    let second = run(Some(&server), &again);

    assert_eq!(second.status.code(), Some(3), "{second:?}");
    let next = folder.path("corrected-2");
    let advice = format!("rename {rejects} to {next}, fix");
    assert!(stdout(&second).contains(&advice), "{second:?}");
}

#[test]
fn corrected_rejects_of_files_that_are_not_finished_are_refused_and_nothing_is_sent() {
    let folder = Folder::new("several-unfinished");
    let server = MockServer::builder().start_blocking();
    let files = ["a", "b"].map(|name| {
        let text = format!("email\n{name}@x.io\n");
        folder.file(&format!("{name}.csv"), &text)
    });
    let (rejects, corrected) = (folder.path("rejects"), folder.path("corrected"));
    std::fs::create_dir(&rejects).unwrap();
    let arguments = [files[0].as_str(), &files[1], "--rejects", &rejects];
    let with_corrected = [&arguments[..], &["--resume", "--corrected", &corrected]].concat();
    server.fault(Fault::status(501).path("/contacts/batch"));
    let first = run(Some(&server), &arguments);
    assert_eq!(first.status.code(), Some(1), "{first:?}");
    server.clear_faults();
    server.clear_requests();
    std::fs::rename(&rejects, &corrected).unwrap();
    std::fs::create_dir(&rejects).unwrap();

    let output = run(Some(&server), &with_corrected);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = format!("{} is not finished, so {corrected}", files[0]);
    assert!(stderr.contains(&said), "{stderr}");
    assert!(server.requests().is_empty());
    let verified = run(
        Some(&server),
        &[&files[0], "--verify", "--corrected", &corrected],
    );
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    let stderr = String::from_utf8_lossy(&verified.stderr);
    assert!(stderr.contains(&said), "{stderr}");
    let both = ["import", &files[0], "--corrected", &corrected, "--mock"];
    let output = Command::new(program("audience")).args(both).output();
    let stderr = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

#[test]
fn with_a_full_plan_the_advice_is_to_raise_it_and_not_to_fix_rows() {
    let folder = Folder::new("full-plan");
    let server = MockServer::builder().contact_ceiling(1).start_blocking();
    let file = folder.file("list.csv", "email\na@x.io\nb@x.io\nc@x.io\n");

    let output = run(
        Some(&server),
        &[&file, "--rejects", &folder.path("rejects.csv")],
    );

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stdout = stdout(&output);
    let said = "raise it, then continue with --resume";
    assert!(stdout.contains(said), "{stdout}");
    assert!(!stdout.contains("fix the rows"), "{stdout}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("; to continue: "), "{stderr}");
}

#[test]
fn after_a_failed_opt_out_without_topics_the_advice_is_to_continue_and_not_to_fix_rows() {
    let outage = Fault::status(503).retry_after(900); // too long to wait for
    for (fault, status) in [(outage, 75), (Fault::status(501), 1)] {
        let folder = Folder::new(&format!("failed-opt-out-{status}"));
        let server = MockServer::builder().start_blocking();
        let file = "email,unsubscribed\nada@x.io,yes\nnobody,no\n";
        let file = folder.file("list.csv", file);
        let rejects = folder.path("rejects.csv");
        server.fault(fault.path("/contacts/*/unsubscribe"));

        let output = run(Some(&server), &[&file, "--rejects", &rejects]);

        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let said = stdout(&output);
        assert!(said.contains("validation_error"), "{said}");
        for advice in ["fix the rows", "misspelled"] {
            assert!(!said.contains(advice), "{said}");
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("; to continue: "), "{stderr}");
        server.clear_faults();
        let output = run(Some(&server), &[&file, "--rejects", &rejects, "--resume"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(stdout(&output).contains("fix the rows"), "{output:?}");
        assert!(server.contact("ada@x.io").unwrap().unsubscribed);
    }
}

#[test]
fn after_a_trial_with_the_mock_the_advice_is_to_fix_the_rows_before_the_import() {
    let folder = Folder::new("several-mock");
    let unsubscribed = "Email Address,UNSUB_TIME,LEID,EUID\nnobody,2024,1,a\n";
    let files = [
        folder.file("subscribed.csv", "Email Address,LEID,EUID\nada@x.io,1,a\n"),
        folder.file("unsubscribed.csv", unsubscribed),
    ];
    let rejects = folder.path("rejects");
    std::fs::create_dir(&rejects).unwrap();

    let trial = run(None, &[&files[0], &files[1], "--rejects", &rejects]);

    assert_eq!(trial.status.code(), Some(1), "{trial:?}");
    let stdout = stdout(&trial);
    let advice = format!("fix these rows before the import; {rejects} says what is wrong");
    assert!(stdout.contains(&advice), "{stdout}");
    assert!(!stdout.contains("and run: "), "{stdout}");
}

#[test]
fn a_folder_for_rejects_without_a_name_of_its_own_is_refused() {
    let folder = Folder::new("rejects-here");
    let server = MockServer::builder().start_blocking();
    let files = ["a", "b"].map(|name| {
        let text = format!("email\n{name}@x.io\n");
        folder.file(&format!("{name}.csv"), &text)
    });

    for rejects in [".", ".."] {
        let output = run(Some(&server), &[&files[0], &files[1], "--rejects", rejects]);

        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let said = "name a folder of its own for --rejects";
        assert!(stderr.contains(said), "{stderr}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn with_a_misspelled_topic_no_command_is_printed_that_repeats_it_and_the_rejects_can_be_imported() {
    let folder = Folder::new("misspelled-topic");
    let server = MockServer::builder().topic("news", true);
    let server = server.start_blocking();
    let file = folder.file("list.csv", "email,Weekly\nada@x.io,no\n");
    let rejects = folder.path("rejects.csv");

    let output = run(
        Some(&server),
        &[&file, "--map", "Weekly=topic:nwes", "--rejects", &rejects],
    );
    let again = run(Some(&server), &[&rejects, "--map", "Weekly=topic:news"]);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let advice = format!(
        "opt-out failed: 1\ncorrect a misspelled topic in --map (without --map, in the first line of the rejects), \
         fix any refused rows in {rejects}, and import that file with other --rejects\n"
    );
    let stdout = stdout(&output);
    assert!(stdout.contains(&advice), "{stdout}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("; the first failure: "), "{stderr}");
    for repeats in ["to continue", "repeat the run"] {
        assert!(!stderr.contains(repeats), "{stderr}");
    }
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(!server.contact("ada@x.io").unwrap().answers["news"]);
    let existing = [
        &file,
        "--map",
        "Weekly=topic:nwes",
        "--rejects",
        &rejects,
        "--on-conflict",
        "error",
        "--journal",
        &folder.path("other.journal"),
    ];
    server.reset();
    let of_existing = self::stdout(&run(Some(&server), &existing));
    assert!(
        of_existing.contains(", set --on-conflict to skip, "),
        "{of_existing}"
    );
}

#[test]
fn refused_rows_are_exit_status_3_and_their_mended_file_can_be_imported() {
    let folder = Folder::new("rejects");
    let server = MockServer::builder().start_blocking();
    let file = folder.file(
        "list.csv",
        "Mail;Vorname;Plan\r\na@x.io;Ada;pro\r\nnobody;Grace;free\r\n",
    );
    let rejects = folder.path("rejects.csv");
    let map = ["--map", "Vorname=first_name", "--map", "Plan=property:tier"];

    let output = run(
        Some(&server),
        &[&[&file, "--rejects", &rejects], &map[..]].concat(),
    );

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(
        last_line(&output),
        "1 created, 0 updated, 0 skipped, 1 refused, 0 not sent, 0 unknown"
    );
    let text = std::fs::read_to_string(&rejects).unwrap();
    assert!(text.contains("\n3,validation_error,"), "{text}");

    let same = run(
        Some(&server),
        &[&[&rejects, "--rejects", &rejects], &map[..]].concat(),
    );
    assert_eq!(same.status.code(), Some(2), "{same:?}");
    assert_eq!(std::fs::read_to_string(&rejects).unwrap(), text);

    let mended = folder.file("mended.csv", &text.replace("nobody", "grace@x.io"));
    let output = run(Some(&server), &[&[&mended[..]], &map[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let grace = server.contact("grace@x.io").unwrap();
    assert_eq!(grace.first_name.as_deref(), Some("Grace"));
    assert_eq!(grace.properties["tier"], "free");
}

#[test]
fn mended_rejects_that_are_imported_without_the_mapping_go_to_the_same_address() {
    let folder = Folder::new("rejects-map");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("list.csv", "Email,Private mail\nwork@x.io,ada@x\n");
    let rejects = folder.path("rejects.csv");
    let map = ["--map", "Private mail=email", "--map", "Email=ignore"];
    server.fault(refused_batch());

    let journal = folder.path("list.journal");
    let output = run(
        Some(&server),
        &[
            &[&file, "--rejects", &rejects, "--journal", &journal],
            &map[..],
        ]
        .concat(),
    );
    server.clear_faults();
    let mended = std::fs::read_to_string(&rejects).unwrap();
    let mended = folder.file("mended.csv", &mended.replace("ada@x", "ada@x.io"));
    let again = run(Some(&server), &[&mended]);

    let advice = format!(
        "fix the rows in {rejects} and import that file with the same options, but other --rejects and another --journal\n"
    );
    assert!(stdout(&output).contains(&advice), "{output:?}");
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(server.contact("ada@x.io").is_some() && server.contact_count() == 1);
}

#[test]
fn the_rejects_of_one_file_can_be_put_into_a_folder_too() {
    let folder = Folder::new("rejects-folder");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("list.csv", "Mail\nada@x.io\nnobody\n");
    let rejects = folder.path("rejects");
    std::fs::create_dir(&rejects).unwrap();

    let output = run(Some(&server), &[&file, "--rejects", &rejects]);

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let advice = format!("rename {rejects} to ");
    assert!(stdout(&output).contains(&advice), "{output:?}");
    let text = std::fs::read_to_string(Path::new(&rejects).join("list.csv")).unwrap();
    assert!(
        text.contains("nobody") && !text.contains("ada@x.io"),
        "{text}"
    );
    let beside = Path::new(&file).parent().unwrap().to_str().unwrap();
    let output = run(Some(&server), &[&file, "--resume", "--rejects", beside]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("ada@x.io"));
}

#[test]
fn rejects_replace_no_other_file_than_the_rejects_of_an_earlier_run() {
    let folder = Folder::new("rejects-other-file");
    let server = MockServer::builder().start_blocking();
    let list = folder.file("b.csv", "email\nnobody\n");
    let other = folder.file("a.csv", "email\na@x.io\n");
    std::fs::create_dir(folder.path("backup")).unwrap();
    let original = folder.file("backup/b.csv", "email\nb@x.io\n");
    // A shell makes the first of these of `--rejects *.csv`.
    for (rejects, kept) in [(&other, &other), (&folder.path("backup"), &original)] {
        for mode in [&[][..], &["--dry-run"], &["--verify"]] {
            let text = std::fs::read(kept).unwrap();

            let output = run(
                Some(&server),
                &[&["--rejects", rejects, &list], mode].concat(),
            );

            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let said = format!("{kept} exists, and it has no rejects of an earlier run");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains(&said), "{stderr}");
            assert_eq!(std::fs::read(kept).unwrap(), text);
        }
    }

    let rejects = folder.file("empty.csv", "");
    for resume in [&[][..], &["--resume"]] {
        let output = run(
            Some(&server),
            &[&["--rejects", &rejects, &list], resume].concat(),
        );
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
}

#[test]
fn if_nothing_records_an_import_no_advice_is_to_continue_it() {
    let server = MockServer::builder().contact_ceiling(1).start_blocking();
    server.seed_contact("c@x.io");
    server.fault(Fault::status(501).path("/contacts/c@x.io/unsubscribe"));
    let mut import = command(Some(&server), &["-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut rows = import.stdin.take().unwrap();
    rows.write_all(b"email,unsubscribed\na@x.io,\nc@x.io,yes\n")
        .unwrap();
    drop(rows);

    let output = import.wait_with_output().unwrap();

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stdout = stdout(&output);
    let said = "raise it, then import all rows again";
    assert!(stdout.contains(said), "{stdout}");
    let said = "opt-out failed: 1; only another run with all rows sends it again";
    assert!(stdout.contains(said), "{stdout}");
    for advice in ["--resume", "journal"] {
        assert!(!stdout.contains(advice), "{stdout}");
    }
}

#[test]
fn rejects_that_would_replace_a_later_file_are_refused_before_the_first_one_is_imported() {
    let folder = Folder::new("rejects-later-file");
    let server = MockServer::builder().start_blocking();
    let (first, rejects) = (folder.file("a.csv", "email\na@x.io\n"), folder.path("more"));
    std::fs::create_dir(&rejects).unwrap();
    let second = folder.file("more/b.csv", "email\nb@x.io\n");

    let output = run(Some(&server), &[&first, &second, "--rejects", &rejects]);

    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(server.contact_count(), 0);
    assert_eq!(std::fs::read(&second).unwrap(), b"email\nb@x.io\n");
}

#[test]
fn an_existing_journal_is_continued_only_with_resume() {
    let folder = Folder::new("resume");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("list.csv", "email\na@x.io\nb@x.io\n");
    let summary = "2 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown";

    let first = run(Some(&server), &[&file, "--resume"]);
    assert_eq!(
        (first.status.code(), last_line(&first)),
        (Some(0), summary.to_owned())
    );
    let sent = server.requests().len();

    let second = run(Some(&server), &[&file]);
    let stderr = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr.contains("--resume"), "{stderr}");

    let third = run(Some(&server), &[&file, "--resume"]);
    assert_eq!(
        (third.status.code(), last_line(&third)),
        (Some(0), summary.to_owned())
    );
    assert_eq!(server.requests().len(), sent);
}

#[test]
fn a_dry_run_sends_nothing_and_writes_no_journal() {
    let folder = Folder::new("dry-run");
    let server = MockServer::builder().start_blocking();
    let file = folder.file("list.csv", "email\na@x.io\nA@x.io\nnobody\n");
    let journal = folder.path("list.csv.journal");

    let output = run(Some(&server), &[&file, "--dry-run"]);

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let stdout = stdout(&output);
    assert!(
        stdout.ends_with(
            "\ndry run: nothing was sent; 2 rows would be sent, 1 of them duplicates, and 1 would be refused\n"
        ),
        "{stdout}"
    );
    assert!(!Path::new(&journal).exists());
    assert!(server.requests().is_empty());
}

#[test]
fn an_input_that_cannot_be_imported_is_exit_status_1_or_2_with_the_reason() {
    let folder = Folder::new("input");
    let status = folder.file("status.csv", "email,status\na@x.io,cleaned\n");
    let list = folder.file("list.csv", "email\na@x.io\n");
    let missing = "no-such-file.csv: there is no such file";
    for (arguments, code, reason) in [
        (&["no-such-file.csv"][..], 2, missing),
        (&[&list, "no-such-file.csv"], 2, missing),
        (&[&status[..]], 1, "may say who opted out: [\"status\"]"),
        (&[&list, "--resume"], 2, "--journal"),
    ] {
        let output = run(None, arguments);

        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
    let server = MockServer::builder().start_blocking();
    let wrong_key = command(Some(&server), &[&list])
        .env("AUDIENCE_KEY", "wrong")
        .output();
    assert_eq!(wrong_key.unwrap().status.code(), Some(1));
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_sigterm_finish_what_is_in_flight_and_name_the_command_that_continues() {
    for signal in ["-INT", "-TERM"] {
        is_continued_after(signal);
    }
}

#[cfg(unix)]
fn is_continued_after(signal: &str) {
    let folder = Folder::new(&format!("interrupted{signal}"));
    let server = MockServer::builder().start_blocking();
    // The whole list would take 100 s, so the signal comes in time.
    server.fault(Fault::delay(Duration::from_secs(1)));
    let rows: String = (0..20_000)
        .map(|number| format!("a{number}@x.io\n"))
        .collect();
    let file = folder.file("list.csv", &format!("email\n{rows}"));
    let mut command = command(Some(&server), &[&file, "--concurrency", "2"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while server.contact_count() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }

    let interrupt = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    let output = child.wait_with_output().unwrap();

    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let created = server.contact_count();
    assert!(created < 20_000);
    let not_sent = 20_000 - created;
    assert_eq!(
        last_line(&output),
        format!(
            "{created} created, 0 updated, 0 skipped, 0 refused, {not_sent} not sent, 0 unknown"
        )
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    let command = format!(" import {file} --concurrency 2 --yes --resume\n");
    assert!(stderr.ends_with(&command), "{stderr}");

    server.clear_faults();
    let output = run(Some(&server), &[&file, "--resume"]);
    assert_eq!(
        last_line(&output),
        "20000 created, 0 updated, 0 skipped, 0 refused, 0 not sent, 0 unknown"
    );
}

#[test]
fn a_column_is_mapped_to_a_topic_with_an_equals_sign_in_its_name() {
    let folder = Folder::new("map-equals");
    let server = MockServer::builder().topic("a=b", true).start_blocking();
    let file = folder.file("list.csv", "email,News,c=d\nada@x.io,no,e\n");

    let map = ["--map", "News=topic:a=b", "--map", "c=d=property:f=g"];
    let output = run(Some(&server), &[&[&*file], &map[..]].concat());
    let wrong = run(Some(&server), &[&file, "--map", "News=tropic:a=b"]);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let ada = server.contact("ada@x.io").unwrap();
    assert!(!ada.topics["a=b"]);
    assert_eq!(ada.properties["f=g"], "e");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}
