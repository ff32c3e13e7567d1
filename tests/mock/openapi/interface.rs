//! Compares the tables of `docs/interface.md` with the description: fields and refusals.

use std::collections::{BTreeMap, BTreeSet};

use audience::mock::Dialect;
use serde_json::Value;

use super::conformance::{DESCRIPTION, resolve};
use super::refusals::{Refusal, described, described_of_the_service};

const INTERFACE: &str = include_str!("../../../docs/interface.md");

/// A table of the document.
struct Table {
    /// The heading above it.
    heading: &'static str,
    /// The schemas in the paragraph before it, if that starts with "OpenAPI:".
    schemas: Vec<&'static str>,
    columns: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

/// Returns every table of the document.
fn tables() -> Vec<Table> {
    let mut heading = "";
    let mut schemas = Vec::new();
    let mut tables = Vec::new();
    for block in INTERFACE.split("\n\n").map(str::trim) {
        if block.starts_with('#') {
            heading = block;
        } else if let Some(names) = block.strip_prefix("OpenAPI: ") {
            schemas = quoted(names);
        } else if block.starts_with('|') {
            let mut rows = block.lines().map(cells);
            let columns = rows.next().unwrap();
            tables.push(Table {
                heading,
                schemas: std::mem::take(&mut schemas),
                columns,
                rows: rows.skip(1).collect(),
            });
        }
    }
    tables
}

fn cells(line: &str) -> Vec<&str> {
    let cells = line.trim().trim_matches('|').split('|');
    cells.map(|cell| cell.trim().trim_matches('`')).collect()
}

/// Returns the texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A field as a table shows it.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    types: BTreeSet<String>,
    is_required: bool,
}

/// Returns the fields of a schema. Those of an object inside it have names such as `error.code`.
fn fields(schema: &Value, prefix: &str) -> Vec<(String, Field)> {
    let required = schema["required"].as_array();
    let members = schema["properties"].as_object().into_iter().flatten();
    members
        .flat_map(|(name, member)| {
            let is_required = required.is_some_and(|names| names.iter().any(|one| one == name));
            let types = types(member);
            let path = format!("{prefix}{name}");
            let inside = fields(member, &format!("{path}."));
            std::iter::once((path, Field { types, is_required })).chain(inside)
        })
        .collect()
}

fn types(schema: &Value) -> BTreeSet<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return types(DESCRIPTION.pointer(&reference[1..]).unwrap());
    }
    let choices = ["anyOf", "oneOf"]
        .iter()
        .filter_map(|name| schema[*name].as_array());
    let of_choices = choices.flatten().flat_map(types);
    let own = match &schema["type"] {
        Value::Array(names) => names.iter().collect(),
        Value::Null => Vec::new(),
        name => vec![name],
    };
    let own = own
        .into_iter()
        .map(|name| name.as_str().unwrap().to_owned());
    own.chain(of_choices).collect()
}

/// Returns the fields of several schemas together. A field is required if each of them requires it.
fn fields_of_all(schemas: &[&str]) -> BTreeMap<String, Field> {
    let mut all: BTreeMap<String, Field> = BTreeMap::new();
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for name in schemas {
        let schema = resolve(&format!("/components/schemas/{name}"))
            .unwrap_or_else(|| panic!("openapi/audience.json has no schema {name}"));
        for (name, field) in fields(schema, "") {
            *count.entry(name.clone()).or_default() += 1;
            let known = all.entry(name).or_insert_with(|| Field {
                types: BTreeSet::new(),
                is_required: true,
            });
            known.types.extend(field.types);
            known.is_required &= field.is_required;
        }
    }
    for (name, field) in &mut all {
        field.is_required &= count[name] == schemas.len();
    }
    all
}

/// Returns the fields in the rows of a table. A table without a column "Required" is of a response: it has them all.
fn fields_of_table(table: &Table) -> BTreeMap<String, Field> {
    let required = table.columns.iter().position(|name| *name == "Required");
    let field = |row: &Vec<&str>| Field {
        types: row[1].split(" or ").map(str::to_owned).collect(),
        is_required: required.is_none_or(|column| row[column] == "yes"),
    };
    table
        .rows
        .iter()
        .map(|row| (row[0].to_owned(), field(row)))
        .collect()
}

#[test]
fn each_table_of_fields_has_the_fields_of_its_schemas() {
    for table in tables().iter().filter(|table| !table.schemas.is_empty()) {
        let in_the_table = fields_of_table(table);

        let in_the_description = fields_of_all(&table.schemas);

        let place = format!("{}: {:?}", table.heading, table.schemas);
        assert_eq!(in_the_table, in_the_description, "{place}");
        assert_eq!(
            table.rows.len(),
            in_the_table.len(),
            "{place} has a field twice"
        );
    }
}

#[test]
fn each_schema_with_fields_has_a_table() {
    let tables = tables();
    let shown: BTreeSet<&str> = tables
        .iter()
        .flat_map(|table| table.schemas.clone())
        .collect();

    let schemas = DESCRIPTION["components"]["schemas"].as_object().unwrap();
    let with_fields: BTreeSet<&str> = schemas
        .iter()
        .filter(|(_, schema)| schema["properties"].is_object())
        .map(|(name, _)| name.as_str())
        .collect();

    assert_eq!(shown, with_fields);
}

#[test]
fn the_tables_of_parameters_headers_and_event_types_are_complete() {
    for (column, pointer) in [
        ("Parameter", "/paths/~1contacts/get/parameters"),
        ("Header", "/webhooks/email.sent/post/parameters"),
    ] {
        let parameters = DESCRIPTION.pointer(pointer).unwrap().as_array().unwrap();
        let described: BTreeSet<&str> = (0..parameters.len())
            .map(|index| resolve(&format!("{pointer}/{index}")).unwrap())
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(first_cells(column), described, "{column}");
    }
    let webhooks = DESCRIPTION["webhooks"].as_object().unwrap();
    assert_eq!(
        first_cells("Type"),
        webhooks.keys().map(String::as_str).collect()
    );
}

/// Returns the first cells of the one table whose first column has this name.
fn first_cells(column: &str) -> BTreeSet<&'static str> {
    let mut tables = tables();
    tables.retain(|table| table.columns[0] == column);
    let [table] = &tables[..] else {
        panic!("{} tables start with {column}", tables.len());
    };
    table.rows.iter().map(|row| row[0]).collect()
}

/// Returns the tables of refusals: of each operation, with the id of the operation, and of section 7.
fn refusal_tables() -> (BTreeSet<Refusal>, BTreeSet<(u16, String)>) {
    let (mut of_operations, mut of_all) = (BTreeSet::new(), BTreeSet::new());
    for table in tables()
        .iter()
        .filter(|table| table.columns.starts_with(&["Status", "Slug"]))
    {
        let operation = quoted(table.heading).first().map(|name| {
            let (method, path) = name.split_once(' ').unwrap();
            let path = path.replace('/', "~1");
            let id = resolve(&format!(
                "/paths/{path}/{}/operationId",
                method.to_lowercase()
            ));
            id.unwrap_or_else(|| panic!("openapi/audience.json has no {name}"))
                .as_str()
                .unwrap()
        });
        for row in &table.rows {
            let (status, slug) = (row[0].parse().unwrap(), row[1].to_owned());
            let is_new = match operation {
                Some(id) => of_operations.insert((id.to_owned(), status, slug)),
                None => of_all.insert((status, slug)),
            };
            assert!(is_new, "{}: {row:?} stands there twice", table.heading);
        }
    }
    (of_operations, of_all)
}

#[test]
fn each_table_of_refusals_has_the_refusals_of_its_operation() {
    let (of_operations, of_all) = refusal_tables();

    assert_eq!(of_operations, described_of_the_service());
    let without_operations = described()
        .into_iter()
        .map(|(_, status, slug)| (status, slug));
    assert_eq!(of_all, without_operations.collect());
}

#[test]
fn each_setting_of_the_dialect_stands_in_the_table_of_open_questions() {
    let (_, open) = INTERFACE.split_once("<a id=\"open\"></a>").unwrap();

    for dialect in Dialect::all() {
        let text = dialect.to_string();
        let setting = text.split(": ").next().unwrap();
        assert!(open.contains(&format!("(`{setting}`)")), "{setting}");
    }
}
