//! The mock: the service, the server in front of it, its program, its page, its description and its examiner.
#![cfg(test)]

mod contract;
mod examine;
mod html_form;
mod openapi;
mod page;
mod program;
mod receiver;
mod server;
