//! `parse_toml`: a file of `python/leadline/tables/`, many times faster than a parser in Python; every command reads all of them.

use crate::error::Error;
use leadline_errors::{Error as Said, Kind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use toml::{Table, Value};

/// What a file says.
#[pyfunction]
pub(crate) fn parse_toml<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
    let wrong = |e: toml::de::Error| Error::from(Said::new(Kind::Invalid, "this is no TOML").detail(e.to_string()));
    dict_of(py, &text.parse::<Table>().map_err(wrong)?)
}

fn dict_of<'py>(py: Python<'py>, table: &Table) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in table {
        dict.set_item(key, object_of(py, value)?)?;
    }
    Ok(dict)
}

fn object_of<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Integer(n) => n.into_pyobject(py)?.into_any(),
        Value::Float(n) => n.into_pyobject(py)?.into_any(),
        Value::Boolean(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Value::Datetime(time) => time.to_string().into_pyobject(py)?.into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(object_of(py, value)?)?;
            }
            list.into_any()
        }
        Value::Table(table) => dict_of(py, table)?.into_any(),
    })
}
