//! Parameters of a request, read one by one; what is wrong with them is said as the Gateway says
//! it.
//!
//! Objects are closed: a member nobody asked for is refused. Source: openclaw-serve §1.8.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::refusal::Refusal;

/// Bytes of a key, name, id or route; longer ones are refused.
pub(super) const FIELD_BYTES_MAX: usize = 1_024;

/// The members of a parameters object.
#[derive(Debug)]
pub(super) struct Params<'a> {
    method: &'a str,
    /// Where the object stands: empty at the root, else `/member`.
    path: String,
    members: BTreeMap<String, &'a RawValue>,
}

impl<'a> Params<'a> {
    /// Reads an object; absent parameters are an empty one.
    ///
    /// # Errors
    /// When it is no object.
    pub(super) fn read(method: &'a str, raw: Option<&'a RawValue>) -> Result<Self, Refusal> {
        let members = match raw {
            None => BTreeMap::new(),
            Some(raw) => object(raw).ok_or_else(|| refuse(method, "must be object"))?,
        };
        Ok(Self {
            method,
            path: String::new(),
            members,
        })
    }

    /// Refuses members that are not among `known`.
    ///
    /// # Errors
    /// Names the first one.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self
            .members
            .keys()
            .find(|name| !known.contains(&name.as_str()))
        {
            None => Ok(()),
            Some(name) => {
                let place = match self.path.as_str() {
                    "" => "root",
                    path => path,
                };
                let name = crate::secret::Quoted(name);
                Err(self.refuse(&format!("at {place}: unexpected property '{name}'")))
            }
        }
    }

    /// A member as it is, JSON `null` included.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.members.get(name).copied()
    }

    /// A string of any length.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn long_text(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(raw) = self.present(name) else {
            return Ok(None);
        };
        match serde_json::from_str::<String>(raw.get()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.wrong(name, "must be string")),
        }
    }

    /// A short string, trimmed; blank counts as absent.
    ///
    /// # Errors
    /// When it is something else or too long.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(text) = self.long_text(name)? else {
            return Ok(None);
        };
        let text = text.trim();
        if text.len() > FIELD_BYTES_MAX {
            let rule = format!(
                "must NOT have more than {FIELD_BYTES_MAX} bytes (found {})",
                text.len()
            );
            return Err(self.wrong(name, &rule));
        }
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// A short string that must be there.
    ///
    /// # Errors
    /// When it is absent, blank, too long or no string.
    pub(super) fn required_text(&self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    /// A string that must be there and hold at least one character.
    ///
    /// # Errors
    /// When it is absent, empty or no string.
    pub(super) fn required_long_text(&self, name: &str) -> Result<String, Refusal> {
        let text = self.long_text(name)?;
        text.filter(|text| !text.is_empty())
            .ok_or_else(|| self.missing(name))
    }

    /// A whole number of at least `least`. A fraction is cut off when `floors`.
    ///
    /// # Errors
    /// When it is something else or smaller.
    pub(super) fn integer(
        &self,
        name: &str,
        least: u64,
        floors: bool,
    ) -> Result<Option<u64>, Refusal> {
        let Some(raw) = self.present(name) else {
            return Ok(None);
        };
        let whole = raw.get().parse::<u64>().ok().or_else(|| {
            let number = raw.get().parse::<f64>().ok()?;
            let fits = (0.0..9_007_199_254_740_992.0).contains(&number);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked against both ends of the exact range"
            )]
            (fits && (floors || number.fract() == 0.0)).then_some(number as u64)
        });
        match whole {
            Some(number) if number >= least => Ok(Some(number)),
            Some(_) => Err(self.wrong(name, &format!("must be >= {least}"))),
            None if is_number(raw) => Err(self.wrong(
                name,
                if raw.get().starts_with('-') {
                    "must not be negative"
                } else {
                    "must be integer"
                },
            )),
            None => Err(self.wrong(name, "must be integer")),
        }
    }

    /// One of these strings.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn one_of(&self, name: &str, known: &[&str]) -> Result<Option<String>, Refusal> {
        let text = self.text(name)?;
        if text
            .as_ref()
            .is_some_and(|text| !known.contains(&text.as_str()))
        {
            let rule = format!("must be one of {}", known.join(", "));
            return Err(self.wrong(name, &rule));
        }
        Ok(text)
    }

    /// A boolean; absent is false.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.present(name).map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(self.wrong(name, "must be boolean")),
        }
    }

    /// A string or a number, as text.
    ///
    /// # Errors
    /// When it is something else or too long.
    pub(super) fn text_or_number(&self, name: &str) -> Result<Option<String>, Refusal> {
        match self.present(name) {
            Some(raw) if is_number(raw) => Ok(Some(raw.get().to_owned())),
            _ => self.text(name),
        }
    }

    /// Short strings.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        let Some(raw) = self.present(name) else {
            return Ok(None);
        };
        match serde_json::from_str::<Vec<String>>(raw.get()) {
            Ok(texts) => Ok(Some(texts)),
            Err(_) => Err(self.wrong(name, "must be array of strings")),
        }
    }

    /// A member that is an object of its own.
    ///
    /// # Errors
    /// When it is no object.
    pub(super) fn object(&self, name: &str) -> Result<Option<Self>, Refusal> {
        let Some(raw) = self.present(name) else {
            return Ok(None);
        };
        let members = object(raw).ok_or_else(|| self.wrong(name, "must be object"))?;
        Ok(Some(Self {
            method: self.method,
            path: format!("{}/{name}", self.path),
            members,
        }))
    }

    /// The refusal because of member `name`.
    pub(super) fn wrong(&self, name: &str, rule: &str) -> Refusal {
        self.refuse(&format!("at {}/{name}: {rule}", self.path))
    }

    /// The refusal because `name` is not there.
    pub(super) fn missing(&self, name: &str) -> Refusal {
        let place = match self.path.as_str() {
            "" => String::new(),
            path => format!("at {path}: "),
        };
        self.refuse(&format!("{place}must have required property '{name}'"))
    }

    fn refuse(&self, why: &str) -> Refusal {
        refuse(self.method, why)
    }

    /// A member that is there and not `null`.
    fn present(&self, name: &str) -> Option<&'a RawValue> {
        self.raw(name).filter(|raw| raw.get() != "null")
    }
}

fn refuse(method: &str, why: &str) -> Refusal {
    Refusal::invalid(format!("invalid {method} params: {why}"))
}

fn object(raw: &RawValue) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

fn is_number(raw: &RawValue) -> bool {
    raw.get()
        .starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(json: &str, check: impl FnOnce(&Params<'_>) -> T) -> T {
        let raw = RawValue::from_string(json.to_owned()).expect("valid");
        check(&Params::read("m", Some(&raw)).expect("object"))
    }

    #[test]
    fn members_are_read_by_type() {
        with(r#"{"a":" x ","n":3,"f":2.9,"t":true,"z":null}"#, |p| {
            assert_eq!(p.text("a"), Ok(Some("x".to_owned())));
            assert_eq!(p.long_text("a"), Ok(Some(" x ".to_owned())));
            assert_eq!(p.integer("n", 1, false), Ok(Some(3)));
            assert_eq!(p.integer("f", 1, true), Ok(Some(2)));
            assert_eq!(p.flag("t"), Ok(true));
            assert_eq!(p.flag("missing"), Ok(false));
            assert_eq!(p.text("z"), Ok(None), "null is absent");
            assert_eq!(p.text_or_number("n"), Ok(Some("3".to_owned())));
        });
    }

    #[test]
    fn refusals_name_method_member_and_rule() {
        let message = |r: Refusal| r.message;
        with(r#"{"a":1,"n":0,"s":"","big":1e99,"half":0.5}"#, |p| {
            assert_eq!(
                p.text("a").map_err(message),
                Err("invalid m params: at /a: must be string".to_owned())
            );
            assert_eq!(
                p.integer("n", 1, true).map_err(message),
                Err("invalid m params: at /n: must be >= 1".to_owned())
            );
            assert_eq!(
                p.required_text("s").map_err(message),
                Err("invalid m params: must have required property 's'".to_owned())
            );
            assert_eq!(
                p.only(&["n", "a", "big", "half"]).map_err(message),
                Err("invalid m params: at root: unexpected property 's'".to_owned())
            );
            assert!(p.integer("big", 0, true).is_err());
            assert!(p.integer("half", 0, false).is_err());
        });
        with(r#"{"inner":{"x":1}}"#, |p| {
            let inner = p.object("inner").expect("object").expect("there");
            assert_eq!(
                inner.only(&[]).map_err(message),
                Err("invalid m params: at /inner: unexpected property 'x'".to_owned())
            );
            assert_eq!(
                inner.required_text("y").map_err(message),
                Err("invalid m params: at /inner: must have required property 'y'".to_owned())
            );
            assert_eq!(
                inner.one_of("x", &["a"]).map_err(message),
                Err("invalid m params: at /inner/x: must be string".to_owned())
            );
        });
        let raw = RawValue::from_string("[]".to_owned()).expect("valid");
        let refused = Params::read("m", Some(&raw)).map_err(message);
        assert_eq!(
            refused.map(|_| ()),
            Err("invalid m params: must be object".to_owned())
        );
    }

    #[test]
    fn a_field_may_have_just_the_limit() {
        let at = |n: usize| with(&format!(r#"{{"a":"{}"}}"#, "x".repeat(n)), |p| p.text("a"));
        assert!(at(FIELD_BYTES_MAX).is_ok());
        let refused = at(FIELD_BYTES_MAX + 1).expect_err("too long").message;
        assert!(
            refused.contains("1024") && refused.contains("1025"),
            "{refused}"
        );
    }
}
