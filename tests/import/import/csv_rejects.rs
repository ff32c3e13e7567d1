//! Rejects, and their way back.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use audience::contacts::{Contacts, NewContact, OnConflict, OptOutReason, PropertyValue};
use audience::import::{
    Column, CsvInput, CsvRows, ImportReport, ImportRow, OptOut, SyncRow, SyncState,
};
use audience::mock::{Fault, MockServer};

use super::{JournalPath, refused_batch};
use support::mock_builder;

/// A file in memory that can be read after the import has closed it.
#[derive(Clone, Default)]
pub(super) struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl SharedFile {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn import<I>(contacts: &Contacts, rows: I) -> (ImportReport, String)
where
    I: IntoIterator<Item = ImportRow, IntoIter: Send + 'static>,
{
    let file = SharedFile::default();
    let report = contacts.import(rows).rejects(file.clone()).await.unwrap();
    (report, file.text())
}

fn read(text: &str) -> CsvRows {
    CsvRows::new(io::Cursor::new(text.to_owned())).unwrap()
}

#[tokio::test]
async fn the_mended_rejects_of_a_file_can_be_imported_again() {
    let server = MockServer::builder().topic("news", true).start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text = "E-Mail;Vorname;Surname;topic:news;plan\r\n\
        a@x.io;;Ada;;=1+1\r\n\
        nobody;Grace;Hopper;no;\"+49 351; \"\"x\"\"\r\n-\"\r\n\
        c@x.io;Cy;Young;maybe;-5\r\n";

    let (report, rejects) = import(&contacts, read(text)).await;

    assert_eq!((report.created(), report.refused()), (1, 2));
    let lines: Vec<_> = rejects.lines().collect();
    assert_eq!(
        lines[0],
        "line,code,message,retryable,E-Mail,Vorname,Surname,topic:news,plan"
    );
    assert!(lines[1].starts_with("3,validation_error,"), "{rejects}");
    assert!(lines[1].contains(",false,nobody,Grace,Hopper,no,\"'+49 351"));
    assert!(rejects.contains("5,invalid_row,"), "{rejects}");

    // Not mended, they are refused for the same reasons.
    let (report, again) = import(&contacts, read(&rejects)).await;
    assert_eq!(report.refused(), 2, "{again}");
    assert!(again.contains("2,validation_error,"), "{again}");

    let mended = rejects
        .replace("nobody", "grace@x.io")
        .replace("maybe", "no");
    let (report, rejects) = import(&contacts, read(&mended)).await;
    assert_eq!((report.created(), report.refused()), (2, 0), "{rejects}");
    assert_eq!(rejects, "");
    let grace = contacts.retrieve("grace@x.io").await.unwrap();
    assert_eq!(grace.last_name.as_deref(), Some("Hopper"));
    assert_eq!(grace.properties["plan"], "+49 351; \"x\"\r\n-");
    assert!(!grace.topics["news"]);
    let cy = contacts.retrieve("c@x.io").await.unwrap();
    assert_eq!(
        cy.properties.get("plan").and_then(PropertyValue::as_i64),
        Some(-5)
    );
    let ada = contacts.retrieve("a@x.io").await.unwrap();
    assert_eq!(ada.properties["plan"], "=1+1");
}

/// A file on a disk that is found to be full only by the last write.
struct FullAtTheEnd;

impl Write for FullAtTheEnd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[tokio::test]
async fn an_import_whose_rejects_are_not_on_the_disk_at_its_end_fails() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    server.fault(refused_batch());

    let import = contacts.import(["ada@x.io"]).rejects(FullAtTheEnd);
    let stopped = import.await.unwrap_err();

    let message = stopped.error().to_string();
    assert!(message.contains("could not write the rejects"), "{message}");
    assert_eq!(stopped.report().refused(), 1);
}

/// A file on a disk that has no room for the first write.
struct FullAtFirst(bool);

impl Write for FullAtFirst {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::mem::replace(&mut self.0, false) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_import_one_of_whose_rejects_was_not_written_fails() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    // More than is kept in memory until it is written.
    let rows = (0..300).map(|_| ImportRow::unreadable("x".repeat(100)));

    let import = contacts.import(rows).rejects(FullAtFirst(true));
    let stopped = import.await.unwrap_err();

    let message = stopped.error().to_string();
    assert!(message.contains("could not write the rejects"), "{message}");
}

#[tokio::test]
async fn an_import_or_a_sync_that_stops_says_that_its_rejects_could_not_be_written_either() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    server.fault(Fault::status(401).path("/contacts/batch"));
    let state = JournalPath::new();
    let table = [SyncRow::new(1, "ada@x.io")];
    let sync = contacts.sync(table, SyncState::open(&state).unwrap());

    let import = contacts.import(["ada@x.io"]).rejects(FullAtTheEnd);
    let import = import.await.unwrap_err();
    let sync = sync.rejects(FullAtTheEnd).await.unwrap_err();

    for error in [import.error(), sync.error()] {
        assert!(error.is_unauthorized(), "{error}");
        let text = error.to_string();
        let end = "; and could not write the rejects (no storage space)";
        assert!(
            text.contains("responded 401") && text.ends_with(end),
            "{text}"
        );
    }
}

#[tokio::test]
async fn rows_that_are_not_from_a_file_are_read_back_from_the_rejects_as_they_were() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    server.fault(refused_batch());
    let full = NewContact::new("a@x.io")
        .first_name("=Ada")
        .last_name("O'Neill, \"x\"")
        .property("seats", 3)
        .property("postcode", "01067")
        .property("three", "3")
        .property("rate", 1.0)
        .on_conflict(OnConflict::Skip);
    let full = ImportRow::new(full)
        .key("+7")
        .opt_out(OptOut::Everything(OptOutReason::Preferences))
        .opt_out(OptOut::Topic("a:b".to_owned()))
        .opt_out(OptOut::Topic("news".to_owned()));
    let empty_map = NewContact::new("b@x.io").properties(audience::contacts::Properties::new());
    let sent = vec![
        full,
        ImportRow::new(empty_map),
        ImportRow::new(NewContact::new("c@x.io")),
    ];

    let (report, rejects) = import(&contacts, sent.clone()).await;

    assert_eq!(report.refused(), 3, "{report}");
    for (read, sent) in read(&rejects).zip(&sent) {
        assert_eq!(read.contact(), sent.contact(), "{rejects}");
        assert_eq!(read.opt_outs(), sent.opt_outs());
        assert_eq!(read.key_text(), sent.key_text());
    }
    assert_eq!(read(&rejects).count(), 3);
}

#[tokio::test]
async fn a_row_applied_without_its_opt_out_is_a_reject_that_records_it_when_imported_again() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    server.fault(Fault::status(422).path("*/unsubscribe").times(1));

    let (report, rejects) = import(
        &contacts,
        read("email,unsubscribed\na@x.io,yes\nb@x.io,no\n"),
    )
    .await;

    assert_eq!((report.created(), report.opt_out_failed()), (1, 1));
    assert!(rejects.contains("\n2,opt_out_failed,"), "{rejects}");
    let (report, _) = import(&contacts, read(&rejects)).await;
    assert_eq!((report.updated(), report.refused()), (1, 0));
    assert!(contacts.retrieve("a@x.io").await.unwrap().unsubscribed);
}

#[tokio::test]
async fn damage_in_the_rejects_is_not_imported() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let rows = CsvRows::new(&b"email,first name\na@x.io,Andr\xe9\nb@x.io,\"B\n"[..]).unwrap();

    let file = SharedFile::default();
    let import_once = contacts.import(rows).rejects(file.clone());
    let error = import_once.await.unwrap_err();
    assert_eq!(error.report().refused(), 2);
    let again = SharedFile::default();
    let import_once = contacts.import(read(&file.text())).rejects(again.clone());
    let error = import_once.await.unwrap_err();
    assert_eq!(error.report().refused(), 2, "{}", again.text());

    let mended = again.text().replace("Andr\u{fffd}", "André");
    let error = contacts.import(read(&mended)).await.unwrap_err();
    assert_eq!((error.report().created(), error.report().refused()), (1, 1));
}

#[tokio::test]
async fn rows_of_two_inputs_in_one_import_are_never_read_under_the_wrong_columns() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let first = read("email,first name,plan\nx,Ada,pro\n");
    let second = read("email,unsubscribed\ny,yes\n");
    let third = [ImportRow::new(NewContact::new("z"))];

    let (_, rejects) = import(&contacts, first.chain(second).chain(third)).await;

    for text in [saved_by_a_spreadsheet(&rejects), rejects] {
        let rows: Vec<_> = read(&text).collect();
        assert!(rows[0].contact().is_some());
        assert!(rows[1].unreadable_reason().is_some() && rows[2].unreadable_reason().is_some());
    }
}

#[test]
fn the_leading_columns_of_rejects_are_not_columns_of_the_input() {
    let text = "line,code,message,retryable,email,line\n7,x,y,true,a@x.io,'=1\n";
    let input = CsvInput::new(text.as_bytes()).unwrap();

    let names: Vec<_> = input.columns().map(|(name, _)| name.to_owned()).collect();
    let row = input.rows().unwrap().next().unwrap();

    assert_eq!(names, ["email", "line"]);
    assert_eq!(row.line_number(), Some(2));
    assert_eq!(row.input_cells().unwrap(), ["a@x.io", "=1"]);
    // In any other file, an apostrophe is data.
    let row = CsvRows::new("email,line\na@x.io,'=1\n".as_bytes())
        .unwrap()
        .next()
        .unwrap();
    assert_eq!(
        row.contact(),
        Some(&NewContact::new("a@x.io").property("line", "'=1"))
    );
}

#[tokio::test]
async fn a_column_name_that_begins_as_a_formula_keeps_its_name() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();

    let (_, rejects) = import(&contacts, read("email,@handle\nx,ada\n")).await;

    assert!(
        rejects.starts_with("line,code,message,retryable,email,'@handle\n"),
        "{rejects}"
    );
    let row = read(&rejects).next().unwrap();
    assert_eq!(
        row.contact(),
        Some(&NewContact::new("x").property("@handle", "ada"))
    );
}

#[tokio::test]
async fn a_column_of_the_rejects_is_a_property_even_if_its_name_ends_with_another_column_in_parentheses()
 {
    let rejects = "line,code,message,retryable,email,contact (email)\n2,x,x,false,a@x.io,b@x.io\n";

    let row = read(rejects).next().unwrap();

    let contact = NewContact::new("a@x.io").property("contact (email)", "b@x.io");
    assert_eq!(row.contact(), Some(&contact));
}

/// Gives every row the same number of cells, as a spreadsheet does when it saves a file.
fn saved_by_a_spreadsheet(text: &str) -> String {
    let length = |row: &str| {
        let plain = row.split('"').step_by(2);
        plain.map(|part| part.matches(',').count()).sum::<usize>()
    };
    let longest = text.lines().map(length).max().unwrap_or_default();
    let rows = text.lines().map(|row| {
        let commas = ",".repeat(longest - length(row));
        format!("{row}{commas}\r\n")
    });
    rows.collect()
}

#[test]
fn rejects_with_any_text_of_a_row_that_cuts_off_its_file_are_not_the_rest_of_the_list() {
    // As earlier versions wrote them: if a text changes, add the new one.
    for text in [
        "\"a quote in this row is not closed, so the file could not be read from here on; close it, or write it twice\"",
        "the file could not be read from here on: the disk is gone",
        "\"the rest of the original file was not read, because of this row; fix the original file at the line that the \
         column `line` of this row names, repeat or continue the run that wrote these rejects, and import its new rejects\"",
    ] {
        let rejects = "line,code,message,retryable,email,first_name\n";
        let rejects = format!("{rejects}4,invalid_row,{text},false,bob@x.io,Bob\n");

        let row = read(&rejects).next().unwrap();

        let reason = row.unreadable_reason().unwrap();
        let expected = "the rest of the original file was not read, because of this row";
        assert!(reason.starts_with(expected), "{text}: {reason}");
    }
}

#[tokio::test]
async fn the_rejects_of_a_list_of_opt_outs_opt_out_all_again() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text = "email,plan\nnobody,pro\nshort\nlong,1,2\n";
    let input = CsvInput::new(text.as_bytes()).unwrap().opt_out_all();

    let (report, rejects) = import(&contacts, input.rows().unwrap()).await;

    assert_eq!(report.refused(), 3);
    assert!(rejects.starts_with("line,code,message,retryable,unsubscribed,email,plan\n"));
    assert!(rejects.contains("the row has 1 cells, but the file has 2 columns"));
    let mended = rejects.replace("nobody", "bob@example.com");
    for again in [
        read(&mended),
        CsvInput::new(io::Cursor::new(mended.clone()))
            .unwrap()
            .opt_out_all()
            .rows()
            .unwrap(),
    ] {
        let (report, rejects) = import(&contacts, again).await;
        assert_eq!(report.refused(), 2);
        assert!(server.contact("bob@example.com").unwrap().unsubscribed);
        assert_eq!(rejects.matches("unsubscribed").count(), 1);
    }
}

#[tokio::test]
async fn in_a_list_of_opt_outs_no_column_is_in_doubt_nor_in_its_rejects() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text = "Email,OPTIN_TIME,CONFIRM_TIME,CLEAN_TIME,Status\nnobody,1,2,3,cleaned\n";
    let open = || CsvInput::new(text.as_bytes()).unwrap();

    for input in [
        open().opt_out_all(),
        open().ignore_unmapped().opt_out_all(),
        open().opt_out_all().ignore_unmapped(),
        open().opt_out_all().delimiter(',').unwrap(),
    ] {
        let (report, rejects) = import(&contacts, input.rows().unwrap()).await;

        assert_eq!(report.refused(), 1);
        let rows: Vec<_> = read(&rejects.replace("nobody", "ada@x.io")).collect();
        assert!(rows[0].contact().is_some(), "{rejects}");
        let everything = [OptOut::Everything(OptOutReason::Manual)];
        assert_eq!(rows[0].opt_outs(), everything, "{rejects}");
    }
}

#[tokio::test]
async fn a_list_of_opt_outs_keeps_them_when_a_spreadsheet_saves_its_rejects() {
    // The rows are too short and too long, one has no cell that can be read, and the last one is cut off.
    let rows = "1@x.io\n2@x.io,Ada\n3@x.io,Ada,pro,more\n";
    let rows = format!("{rows}{}\n4@x.io,\"Ada", "z".repeat(2_000_000));
    let mailchimp = "Email Address,First Name,LEID,EUID,UNSUB_TIME";
    for (header, opts_out_all) in [
        ("email,first_name,created", true),
        ("email,first_name,unsubscribed", true),
        ("email,Email Status,created", true),
        (mailchimp, false),
    ] {
        let server = MockServer::start().await;
        let contacts = mock_builder(&server).build().unwrap().contacts();
        let text = io::Cursor::new(format!("{header}\n{rows}"));
        let map = |input: CsvInput| match header.contains("Status") {
            true => input.map("Email Status", Column::Ignored).unwrap(),
            false => input,
        };
        let mut input = map(CsvInput::new(text).unwrap());
        if opts_out_all {
            input = input.opt_out_all();
        }
        let file = SharedFile::default();
        let import_once = contacts.import(input.rows().unwrap()).rejects(file.clone());
        import_once.await.unwrap_err();

        let saved = saved_by_a_spreadsheet(&file.text());
        let names = saved.lines().next().unwrap();
        let (_, names) = names.split_once(",retryable,").unwrap();
        let is_email = |name: &str| name.to_lowercase().starts_with("email");
        let place = names.split(',').position(is_email).unwrap();
        // The addresses of the rows without cells are entered by hand.
        let rows = saved.lines().map(|row| match row.split_once(",false,") {
            Some((leading, cells)) if !cells.contains('@') => {
                let mut cells: Vec<_> = cells.split(',').collect();
                cells[place] = "9@x.io";
                format!("{leading},false,{}", cells.join(","))
            }
            _ => row.to_owned(),
        });
        let mended = rows.collect::<Vec<_>>().join("\n");
        let again = map(CsvInput::new(io::Cursor::new(mended.clone())).unwrap());
        let error = contacts.import(again.rows().unwrap()).await.unwrap_err();

        // The last row stands for what was not read; and the row that is too long may still be refused.
        let report = error.report();
        assert!(report.refused() <= 2, "{report}: {mended}");
        assert!(server.contact_count() >= 3, "{mended}");
        for contact in server.contacts() {
            assert!(contact.unsubscribed, "{}: {mended}", contact.email);
        }
    }
}

#[tokio::test]
async fn an_opt_out_is_not_lost_when_a_spreadsheet_lengthens_a_row_that_lacks_a_cell() {
    for (header, row) in [
        ("email,plan,unsubscribed", "a@x.io,yes"),
        ("email,plan,unsubscribed,city", "a@x.io,yes,"),
        ("email,plan,unsubscribed,city", "a@x.io,pro,Ulm,,yes"),
        ("email,plan,topic:news", "a@x.io,no"),
        ("email,plan,topics", "a@x.io,\"{\"\"news\"\":false}\""),
        ("email,plan,unsubscribe_reason", "a@x.io,manual"),
    ] {
        let server = MockServer::start().await;
        let contacts = mock_builder(&server).build().unwrap().contacts();

        let (_, rejects) = import(&contacts, read(&format!("{header}\n{row}\n"))).await;
        let saved = saved_by_a_spreadsheet(&rejects);
        let (report, again) = import(&contacts, read(&saved)).await;

        assert_eq!(report.refused(), 1, "{saved}");
        assert!(server.contacts().is_empty());
        // Its `?` stays until somebody decides.
        let (report, _) = import(&contacts, read(&saved_by_a_spreadsheet(&again))).await;
        assert_eq!(report.refused(), 1, "{again}");
    }
}

#[tokio::test]
async fn a_short_row_whose_question_mark_was_answered_is_imported() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text = "email,unsubscribed,plan\na@x.io\nb@x.io,,\nc@x.io,yes\n";

    let (report, rejects) = import(&contacts, read(text)).await;

    assert_eq!((report.created(), report.refused()), (1, 2));
    assert!(rejects.contains("; replace each ? by what is true\",false,a@x.io,?\n"));
    assert!(rejects.contains(",false,c@x.io,yes\n"), "{rejects}");
    let mended = saved_by_a_spreadsheet(&rejects.replace('?', "yes"));
    let (report, again) = import(&contacts, read(&mended)).await;
    assert_eq!((report.created(), report.refused()), (2, 0), "{again}");
    let opted_out = server.contacts().into_iter().filter(|it| it.unsubscribed);
    assert_eq!(opted_out.count(), 2);
}

#[tokio::test]
async fn a_cell_after_the_last_column_with_a_name_makes_a_row_unreadable() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text = "email,city,unsubscribed,,\na@x.io,Ulm,no,,\nb@x.io,Ulm,,yes,\nc@x.io,Ulm,, ,x\n";

    let (report, rejects) = import(&contacts, read(text)).await;

    assert_eq!((report.created(), report.refused()), (1, 2));
    assert!(
        rejects.contains("after the last column with a name"),
        "{rejects}"
    );
    // An index before the columns is no such cell, nor is a column that the caller has mapped.
    let (report, _) = import(&contacts, read(",email\n0,b@x.io\n")).await;
    assert_eq!(report.created(), 1);
    let input = CsvInput::new("email,\nc@x.io,1\n".as_bytes()).unwrap();
    let rows = input.map("", Column::Ignored).unwrap().rows().unwrap();
    let (report, _) = import(&contacts, rows).await;
    assert_eq!(report.created(), 1);
}

#[tokio::test]
async fn the_rejects_of_another_file_opt_out_all_if_the_caller_says_so() {
    for columns in ["unsubscribed,email", "email,unsubscribed"] {
        let server = MockServer::start().await;
        let contacts = mock_builder(&server).build().unwrap().contacts();
        let cells = match columns.starts_with("email") {
            true => "a@x.io,no",
            false => "no,a@x.io",
        };
        let text = format!("line,code,message,retryable,{columns}\n2,x,y,true,{cells}\n");

        let input = CsvInput::new(io::Cursor::new(text)).unwrap().opt_out_all();
        let (report, _) = import(&contacts, input.rows().unwrap()).await;

        assert_eq!(report.created(), 1, "{columns}");
        assert!(server.contact("a@x.io").unwrap().unsubscribed, "{columns}");
    }
}

#[tokio::test]
async fn the_rejects_of_a_mapped_consent_column_need_no_mapping() {
    for (name, column, cell) in [
        ("Weekly", Column::Topic("a) (b".to_owned()), "no"),
        ("List (old)", Column::Subscribed, "unsubscribed"),
        ("Left", Column::Unsubscribed, "x"),
        ("Why", Column::UnsubscribeReason, "preferences"),
        ("Answers", Column::Topics, "\"{\"\"a) (b\"\":false}\""),
    ] {
        let server = MockServer::builder().topic("a) (b", true).start().await;
        let contacts = mock_builder(&server).build().unwrap().contacts();
        let text = format!("email,{name}\nnobody,{cell}\n");
        let input = CsvInput::new(io::Cursor::new(text)).unwrap();
        let rows = input.map(name, column.clone()).unwrap().rows().unwrap();

        let (_, rejects) = import(&contacts, rows).await;

        let header = format!("retryable,email,{name} ({column})\n");
        assert!(rejects.contains(&header), "{rejects}");
        let mended = rejects.replace("nobody", "a@x.io");
        let input = || CsvInput::new(io::Cursor::new(mended.clone())).unwrap();
        assert!(input().columns().any(|found| found == (name, &column)));
        // Mapped again, not mapped, and the rejects of the rejects.
        let again = input().map(name, column.clone()).unwrap();
        for rows in [again.rows().unwrap(), input().rows().unwrap()] {
            let opt_outs = rows.map(|row| row.opt_outs().len()).collect::<Vec<_>>();
            assert_eq!(opt_outs, [1], "{mended}");
        }
        let (_, again) = import(&contacts, read(&rejects)).await;
        assert!(again.contains(&header), "{again}");
        drop(import(&contacts, input().rows().unwrap()).await);
        let ada = server.contact("a@x.io").unwrap();
        assert!(ada.unsubscribed || !ada.topics["a) (b"]);
    }
    // In any other file, it is a part of the name.
    let input = CsvInput::new("email,Left (unsubscribed)\n".as_bytes()).unwrap();
    assert!(input.columns().all(|(name, _)| name != "Left"));
}

#[tokio::test]
async fn the_rejects_of_any_mapped_column_need_no_mapping() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text = "Email,Private mail,Vorname,First name,Plan,Status,Left (unsubscribed),Customer,Salary,\n\
        work@x.io,nobody,A,Ada,pro,vip,soon,7,9000,=1\n";
    let property = |name: &str| Column::Property(name.to_owned());
    let columns = [
        ("Email", Column::Ignored),
        ("Private mail", Column::Email),
        ("Vorname", Column::Ignored),
        ("First name", Column::FirstName),
        ("Plan", property("tier")),
        ("Status", property("Status")),
        ("Left (unsubscribed)", property("Left (unsubscribed)")),
        ("Customer", Column::Key),
        ("", property("unnamed")),
    ];
    let mut input = CsvInput::new(text.as_bytes()).unwrap().ignore_unmapped();
    for (name, column) in columns {
        input = input.map(name, column).unwrap();
    }

    let (_, rejects) = import(&contacts, input.rows().unwrap()).await;
    let (_, again) = import(&contacts, read(&rejects)).await;

    let ada = NewContact::new("ada@x.io")
        .first_name("Ada")
        .property("tier", "pro")
        .property("Status", "vip")
        .property("Left (unsubscribed)", "soon")
        .property("unnamed", "=1");
    for rejects in [rejects, again] {
        let row = read(&rejects.replace("nobody", "ada@x.io")).next().unwrap();

        assert_eq!(row.contact(), Some(&ada), "{rejects}");
        assert_eq!((row.opt_outs(), row.key_text()), (&[][..], Some("7")));
    }
}

#[tokio::test]
async fn the_rejects_of_mapped_columns_that_are_ignored_otherwise_need_no_mapping() {
    let server = MockServer::start().await;
    let contacts = mock_builder(&server).build().unwrap().contacts();
    let text = "Email Address,OPTIN_TIME,UNSUB_TIME,LEID,EUID\nnobody,2024-01-01,2024-03-01,1,a\n";
    let mut input = CsvInput::new(text.as_bytes()).unwrap();
    for (name, property) in [("OPTIN_TIME", "joined"), ("UNSUB_TIME", "left")] {
        let property = Column::Property(property.to_owned());
        input = input.map(name, property).unwrap();
    }

    let (_, rejects) = import(&contacts, input.rows().unwrap()).await;
    let (_, again) = import(&contacts, read(&rejects)).await;

    let ada = NewContact::new("ada@x.io")
        .property("joined", "2024-01-01")
        .property("left", "2024-03-01");
    for rejects in [rejects, again] {
        let row = read(&rejects.replace("nobody", "ada@x.io")).next().unwrap();

        assert_eq!(row.contact(), Some(&ada), "{rejects}");
        let everything = [OptOut::Everything(OptOutReason::Manual)];
        assert_eq!(row.opt_outs(), everything, "{rejects}");
    }
}
