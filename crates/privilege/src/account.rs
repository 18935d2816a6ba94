//! Users and groups, by name or number, as the system's own library finds them.

use nix::unistd::{Gid, Group, Uid, User};

/// A user to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name; the number where it has none.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Account {
    /// The user of a name or number, with its own group.
    ///
    /// # Errors
    /// There is none, in a few words.
    pub fn find(text: &str) -> Result<Self, String> {
        let unknown = || format!("there is no user `{text}'");
        let number = text.parse::<u32>().ok();
        let found = match number {
            Some(number) => User::from_uid(Uid::from_raw(number)),
            None => User::from_name(text),
        };
        let user = found.map_err(|error| format!("the user `{text}' cannot be looked up: {}", error.desc()))?;
        match (user, number) {
            (Some(user), _) => Ok(Self { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }),
            // A number needs no entry: containers often have none. -1 stands for `no change'.
            (None, Some(number)) if number != u32::MAX => Ok(Self { name: number.to_string(), uid: number, gid: number }),
            (None, _) => Err(unknown()),
        }
    }
}

/// The number of the group of a name or number.
///
/// # Errors
/// There is none, in a few words.
pub fn find_group(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if number != u32::MAX => return Ok(number),
        _ => {}
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("there is no group `{text}'")),
        Err(error) => Err(format!("the group `{text}' cannot be looked up: {}", error.desc())),
    }
}

/// Name of a user; the number where it has none.
pub fn user_name(uid: u32) -> String {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// Name of a group; the number where it has none.
pub fn group_name(gid: u32) -> String {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = Account { name: "root".into(), uid: 0, gid: 0 };
        assert_eq!(Account::find("root"), Ok(root.clone()));
        assert_eq!(Account::find("0"), Ok(root));
        assert_eq!(Account::find("987654"), Ok(Account { name: "987654".into(), uid: 987_654, gid: 987_654 }));
        assert_eq!(Account::find("no-such-user"), Err("there is no user `no-such-user'".into()));
        for odd in ["4294967295", "-1", "a b", ""] {
            assert!(Account::find(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!((find_group("root"), find_group("987654")), (Ok(0), Ok(987_654)));
        assert_eq!(find_group("no-such-group"), Err("there is no group `no-such-group'".into()));
        assert!(find_group("4294967295").is_err());
    }

    #[test]
    fn numbers_have_names_where_somebody_has_given_one() {
        assert_eq!((user_name(0), group_name(0)), ("root".into(), "root".into()));
        assert_eq!((user_name(987_654), group_name(987_654)), ("987654".into(), "987654".into()));
    }
}
