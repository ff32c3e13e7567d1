//! Puts all mutants of a file into it, each behind a call of `crate::mutant`.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A mutant as `cargo mutants --list --json` prints it.
#[derive(Debug, Deserialize)]
pub struct Mutant {
    pub name: String,
    pub file: String,
    pub function: Option<Function>,
    genre: String,
    replacement: String,
    span: LineSpan,
}

#[derive(Debug, Deserialize)]
pub struct Function {
    pub function_name: String,
    pub return_type: String,
    span: LineSpan,
}

#[derive(Debug, Deserialize)]
struct LineSpan {
    start: Position,
    end: Position,
}

/// Counted from 1, in characters.
#[derive(Debug, Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

impl Mutant {
    /// Returns what the mutant is made of: its file, the text of its function, its place in it, and the change. `text` is
    /// that of the file. A mutant outside a function has the whole text in place of that.
    pub fn identity(&self, text: &str) -> impl Hash + use<> {
        let lines = match &self.function {
            Some(function) => (function.span.start.line - 1)..function.span.end.line,
            None => 0..text.lines().count(),
        };
        let own: Vec<&str> = text.lines().skip(lines.start).take(lines.len()).collect();
        let place = (self.span.start.line - lines.start, self.span.start.column);
        // `FILE:LINE:COLUMN: CHANGE`
        let change = self.name.splitn(4, ':').last().map(str::to_owned);
        (self.file.clone(), own.join("\n"), place, change)
    }
}

/// A file with its mutants.
pub struct Rewritten {
    pub text: String,
    /// The mutants' numbers and where their own code is in the text, with and without the original code that it encloses.
    pub places: Vec<Place>,
}

pub struct Place {
    pub number: usize,
    pub own: Range<usize>,
    pub whole: Range<usize>,
}

/// What stands before and after a range of the original code.
struct Edit {
    number: usize,
    range: Range<usize>,
    prefix: String,
    suffix: &'static str,
}

/// Puts mutants, which have a number each, into the text of a file. Leaves those out that cannot be switched.
pub fn rewrite(text: &str, mutants: &[(usize, &Mutant)]) -> Result<Rewritten, syn::Error> {
    let mut nodes = Nodes::default();
    nodes.visit_file(&syn::parse_file(text)?);
    let lines: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let offset = |position: &Position| {
        let line = lines[position.line - 1];
        let mut characters = text[line..].char_indices();
        line + characters
            .nth(position.column - 1)
            .map_or(text.len() - line, |(at, _)| at)
    };
    let mut edits: Vec<Edit> = mutants
        .iter()
        .filter_map(|&(number, mutant)| {
            let span = offset(&mutant.span.start)..offset(&mutant.span.end);
            edit(number, mutant, span, &nodes, text)
        })
        .collect();
    // The outer ones first. The sort keeps the order of those with the same range, and the list has functions first.
    edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end)));
    Ok(apply(text, &edits))
}

fn edit(
    number: usize,
    mutant: &Mutant,
    span: Range<usize>,
    nodes: &Nodes,
    text: &str,
) -> Option<Edit> {
    let on = format!("crate::mutant({number})");
    let replacement = &mutant.replacement;
    let (range, prefix, suffix) = match mutant.genre.as_str() {
        "FnValue" => (span, format!("if {on} {{ return {replacement}; }} "), ""),
        "MatchArm" => {
            let guard = nodes.arms.get(&span.start)?.clone();
            if guard.is_empty() {
                (guard, format!(" if !{on}"), "")
            } else {
                (guard, format!("!{on} && ("), ")")
            }
        }
        genre => {
            let node = match genre {
                "MatchArmGuard" => span.clone(),
                _ => nodes.expressions.get(&span.start)?.clone(),
            };
            let (before, after) = (&text[node.start..span.start], &text[span.end..node.end]);
            let prefix = format!("(if {on} {{ {before}{replacement}{after} }} else {{ ");
            (node, prefix, " })")
        }
    };
    Some(Edit {
        number,
        range,
        prefix,
        suffix,
    })
}

fn apply(text: &str, edits: &[Edit]) -> Rewritten {
    let mut rewritten = Rewritten {
        text: String::new(),
        places: Vec::new(),
    };
    let mut copied = 0;
    // The edits whose suffix is not written yet, and their places.
    let mut open: Vec<(&Edit, usize)> = Vec::new();
    for edit in edits {
        rewritten.close(&mut open, edit.range.start, text, &mut copied);
        rewritten.text.push_str(&text[copied..edit.range.start]);
        copied = edit.range.start;
        let start = rewritten.text.len();
        rewritten.text.push_str(&edit.prefix);
        open.push((edit, rewritten.places.len()));
        rewritten.places.push(Place {
            number: edit.number,
            own: start..rewritten.text.len(),
            whole: start..0,
        });
    }
    rewritten.close(&mut open, text.len(), text, &mut copied);
    rewritten.text.push_str(&text[copied..]);
    rewritten
}

impl Rewritten {
    /// Copies the text up to the end of each open edit that ends before an offset, and its suffix.
    fn close(
        &mut self,
        open: &mut Vec<(&Edit, usize)>,
        before: usize,
        text: &str,
        copied: &mut usize,
    ) {
        while let Some((edit, place)) = open.pop_if(|(edit, _)| edit.range.end <= before) {
            // An arm without a guard has an empty range, inside which nothing can start.
            self.text.push_str(&text[*copied..edit.range.end]);
            *copied = edit.range.end;
            self.text.push_str(edit.suffix);
            self.places[place].whole.end = self.text.len();
        }
    }
}

/// The parts of a file that mutants change.
#[derive(Default)]
struct Nodes {
    /// The range of an expression by the offset of its operator or, for a struct, of each field.
    expressions: HashMap<usize, Range<usize>>,
    /// The range of a match arm's guard, or where it would be, by the offset of the arm.
    arms: HashMap<usize, Range<usize>>,
}

impl<'ast> Visit<'ast> for Nodes {
    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        // Of a chain with `let`, only the parts without it are expressions.
        if !has_let(node) {
            self.expressions.insert(range(&node.op).start, range(node));
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        self.expressions.insert(range(&node.op).start, range(node));
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        for field in &node.fields {
            self.expressions.insert(range(field).start, range(node));
        }
        visit::visit_expr_struct(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        // cargo-mutants looks for `_` too, but also takes one with a guard, and then no arm can be missed.
        let wild = |arm: &syn::Arm| matches!(arm.pat, syn::Pat::Wild(_));
        for arm in node.arms.iter().filter(|_| node.arms.iter().any(wild)) {
            let guard = match &arm.pat {
                syn::Pat::Guard(pattern) => range(&pattern.guard),
                pattern => range(pattern).end..range(pattern).end,
            };
            self.arms.insert(range(arm).start, guard);
        }
        visit::visit_expr_match(self, node);
    }
}

fn has_let(node: &syn::ExprBinary) -> bool {
    [&node.left, &node.right]
        .into_iter()
        .any(|side| match &**side {
            syn::Expr::Let(_) => true,
            syn::Expr::Binary(inner) => has_let(inner),
            _ => false,
        })
}

fn range(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}
