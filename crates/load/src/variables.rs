//! The variables of one client.

use crate::names::Names;
use crate::value::{Outcome, Value};

/// What a variable holds.
#[derive(Debug, Clone)]
enum Held {
    Nothing,
    Value(Value),
    /// What the server or the user said; its value is found when an expression asks.
    Text(Vec<u8>),
}

/// By the number of their name.
#[derive(Debug, Clone)]
pub struct Variables(Vec<Held>);

impl Variables {
    /// So many, none set.
    pub fn new(count: usize) -> Variables {
        Variables(vec![Held::Nothing; count])
    }

    /// Sets one to a value.
    pub fn set(&mut self, number: usize, value: Value) {
        self.0[number] = Held::Value(value);
    }

    /// Sets one to a text.
    pub fn set_text(&mut self, number: usize, text: &[u8]) {
        self.0[number] = Held::Text(text.to_vec());
    }

    /// Whether it was set.
    pub fn is_set(&self, number: usize) -> bool {
        !matches!(self.0[number], Held::Nothing)
    }

    /// Its value in an expression.
    pub fn value(&self, number: usize, names: &Names) -> Outcome<Value> {
        match &self.0[number] {
            Held::Value(value) => Ok(*value),
            Held::Text(text) => Value::of_text(names.name(number), text),
            Held::Nothing => Err(format!("undefined variable \"{}\"", names.name(number))),
        }
    }

    /// Appends it as the server gets it; false of one that is not set.
    pub fn write(&self, number: usize, out: &mut Vec<u8>) -> bool {
        match &self.0[number] {
            Held::Nothing => return false,
            Held::Value(value) => value.write(out),
            Held::Text(text) => out.extend_from_slice(text),
        }
        true
    }
}
