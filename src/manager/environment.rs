//! What a child process inherits and what its entry may set.
//!
//! A child sees an allow list of our own environment, then the names its entry asks for (`inheritEnv`), then
//! the entry's `env`. Names that change how programs start, where they load code from or whom they trust
//! for packages are blocked in the latter two. Source: OpenClaw `isDangerousMcpStdioEnvVarName`; the lists
//! are facts of its environment policy.

use std::collections::BTreeMap;

use crate::manager::filter::matches;

/// Names every child inherits. Source: OpenClaw; ours are what says which language, zone and temporary
/// directory the person uses, and what programs on Windows cannot start without.
const INHERITED: &[&str] = &[
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
];

/// What is inherited beside [`INHERITED`] on Windows. Source: OpenClaw.
const INHERITED_ON_WINDOWS: &[&str] = &[
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
];

/// Names that begin so are blocked. OpenClaw: blocked prefixes.
pub const BLOCKED_PREFIXES: [&str; 3] = ["BASH_FUNC_", "DYLD_", "LD_"];

/// Names that are blocked, in byte order. OpenClaw: blocked keys.
pub const BLOCKED: [&str; 190] = [
    "ANSIBLE_CALLBACK_PLUGINS",
    "ANSIBLE_COLLECTIONS_PATH",
    "ANSIBLE_CONFIG",
    "ANSIBLE_CONNECTION_PLUGINS",
    "ANSIBLE_FILTER_PLUGINS",
    "ANSIBLE_INVENTORY_PLUGINS",
    "ANSIBLE_LIBRARY",
    "ANSIBLE_LOOKUP_PLUGINS",
    "ANSIBLE_MODULE_UTILS",
    "ANSIBLE_REMOTE_TEMP",
    "ANSIBLE_ROLES_PATH",
    "ANSIBLE_STRATEGY_PLUGINS",
    "ANT_OPTS",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "BUNDLE_GEMFILE",
    "BUN_CONFIG_REGISTRY",
    "BZR_EDITOR",
    "BZR_PLUGIN_PATH",
    "BZR_SSH",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTDOC",
    "CARGO_HOME",
    "CATALINA_OPTS",
    "CC",
    "CFLAGS",
    "CGO_CFLAGS",
    "CGO_LDFLAGS",
    "CLASSPATH",
    "CMAKE_CXX_COMPILER",
    "CMAKE_C_COMPILER",
    "CMAKE_TOOLCHAIN_FILE",
    "COMPOSER_HOME",
    "CONFIG_SHELL",
    "CONFIG_SITE",
    "CORECLR_PROFILER",
    "CORECLR_PROFILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CURL_HOME",
    "CXX",
    "C_INCLUDE_PATH",
    "DENO_DIR",
    "DOTNET_ADDITIONAL_DEPS",
    "DOTNET_STARTUP_HOOKS",
    "EDITOR",
    "ELIXIR_ERL_OPTIONS",
    "EMACSLOADPATH",
    "ENV",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_ZFLAGS",
    "EXINIT",
    "FCEDIT",
    "FPATH",
    "GCONV_PATH",
    "GEM_HOME",
    "GEM_PATH",
    "GIT_ALLOW_PROTOCOL",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ASKPASS",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_HOOK_PATH",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PROTOCOL_FROM_USER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "GIT_SSL_NO_VERIFY",
    "GIT_TEMPLATE_DIR",
    "GIT_WORK_TREE",
    "GLIBC_TUNABLES",
    "GOENV",
    "GOFLAGS",
    "GONOPROXY",
    "GONOSUMCHECK",
    "GONOSUMDB",
    "GOPATH",
    "GOPRIVATE",
    "GOPROXY",
    "GRADLE_OPTS",
    "GVIMINIT",
    "HELM_HOME",
    "HELM_PLUGINS",
    "HGEDITOR",
    "HGMERGE",
    "HGRCPATH",
    "HOSTALIASES",
    "IFS",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JULIA_EDITOR",
    "KSH_ENV",
    "LDFLAGS",
    "LESSCLOSE",
    "LESSOPEN",
    "LIBRARY_PATH",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_INIT_5_1",
    "LUA_INIT_5_2",
    "LUA_INIT_5_3",
    "LUA_INIT_5_4",
    "LUA_PATH",
    "MAKE",
    "MAKEFLAGS",
    "MAVEN_OPTS",
    "MFLAGS",
    "MYVIMRC",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REDIRECT_WARNINGS",
    "NODE_REPL_EXTERNAL_MODULE",
    "NODE_REPL_HISTORY",
    "NODE_V8_COVERAGE",
    "OBJC_INCLUDE_PATH",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "PACKER_PLUGIN_PATH",
    "PERL5DB",
    "PERL5DBCMD",
    "PERL5LIB",
    "PERL5OPT",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PIP_CONFIG_FILE",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_PYPI_URL",
    "PIP_TRUSTED_HOST",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RUBYLIB",
    "RUBYOPT",
    "RUBYSHELL",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "R_ENVIRON",
    "R_ENVIRON_USER",
    "R_LIBS_USER",
    "R_PROFILE",
    "R_PROFILE_USER",
    "SBT_OPTS",
    "SHELL",
    "SHELLOPTS",
    "SSH_ASKPASS",
    "SSLKEYLOGFILE",
    "SUDO_ASKPASS",
    "SUDO_EDITOR",
    "SVN_EDITOR",
    "SVN_SSH",
    "TCLLIBPATH",
    "TF_CLI_CONFIG_FILE",
    "TF_PLUGIN_CACHE_DIR",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_PYTHON",
    "VAGRANT_VAGRANTFILE",
    "VIMINIT",
    "VIRTUAL_ENV",
    "VISUAL",
    "WGETRC",
    "YARN_RC_FILENAME",
    "_JAVA_OPTIONS",
];

/// Why a variable is not passed on. Shown behind its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dropped {
    /// It changes how programs start.
    Blocked,
    /// No process can have a variable of that name.
    Name,
    /// The value holds a NUL byte.
    Nul,
}

impl Dropped {
    /// What a person is told.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "is blocked, since it changes how programs start, and was left out",
            Self::Name => "is no name a variable can have and was left out",
            Self::Nul => "holds a NUL byte and was left out",
        }
    }
}

/// Whether an entry may not set this name: compared trimmed and without case.
#[must_use]
pub fn is_blocked(name: &str) -> bool {
    let name = name.trim().to_ascii_uppercase();
    BLOCKED.binary_search(&name.as_str()).is_ok()
        || BLOCKED_PREFIXES.iter().any(|start| name.starts_with(start))
}

/// Whether an entry may set this variable.
///
/// # Errors
/// Why not.
pub fn check(name: &str, value: &str) -> Result<(), Dropped> {
    if name.is_empty() || name.contains(['=', '\0']) {
        Err(Dropped::Name)
    } else if is_blocked(name) {
        Err(Dropped::Blocked)
    } else if value.contains('\0') {
        Err(Dropped::Nul)
    } else {
        Ok(())
    }
}

/// What every child gets of our own environment. Exported shell functions are left out.
#[must_use]
pub fn inherited(ours: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let on_windows = |name: &str| {
        cfg!(windows) && INHERITED_ON_WINDOWS.contains(&name.to_ascii_uppercase().as_str())
    };
    pick(ours, |name| {
        INHERITED.contains(&name) || name.starts_with("LC_") || on_windows(name)
    })
}

/// What of our own environment fits one pattern of `inheritEnv`, with blocked names left out.
#[must_use]
pub fn asked_for(ours: &BTreeMap<String, String>, pattern: &str) -> BTreeMap<String, String> {
    pick(ours, |name| matches(pattern, name) && !is_blocked(name))
}

fn pick(
    ours: &BTreeMap<String, String>,
    wanted: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    ours.iter()
        .filter(|(name, value)| wanted(name) && !value.starts_with("()"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> BTreeMap<String, String> {
        [
            ("PATH", "/bin"),
            ("LANG", "C.UTF-8"),
            ("LC_ALL", "C"),
            ("AWS_PROFILE", "p"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("LD_PRELOAD", "/x.so"),
            ("TERM", "() { :; }"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    #[test]
    fn the_list_can_be_searched() {
        assert!(BLOCKED.is_sorted());
        for name in BLOCKED {
            assert!(is_blocked(&format!(" {} ", name.to_ascii_lowercase())));
        }
        for name in ["PATH", "HTTP_PROXY", "SSL_CERT_FILE", "OLD_LD_X", ""] {
            assert!(!is_blocked(name), "{name}");
        }
    }

    #[test]
    fn only_the_allow_list_is_inherited() {
        let names: Vec<String> = inherited(&ours()).into_keys().collect();
        assert_eq!(names, ["LANG", "LC_ALL", "PATH"]);
    }

    #[test]
    fn more_is_inherited_on_request_and_blocked_names_never() {
        let names = |pattern| asked_for(&ours(), pattern).into_keys().collect::<Vec<_>>();
        assert_eq!(names("AWS_*"), ["AWS_PROFILE", "AWS_SECRET_ACCESS_KEY"]);
        assert_eq!(names("AWS_PROFILE"), ["AWS_PROFILE"]);
        assert!(names("LD_*").is_empty());
    }

    #[test]
    fn impossible_variables_are_dropped() {
        assert_eq!(check("A", "1"), Ok(()));
        assert_eq!(check("", "1"), Err(Dropped::Name));
        assert_eq!(check("A=B", "1"), Err(Dropped::Name));
        assert_eq!(check("A", "a\0b"), Err(Dropped::Nul));
        assert_eq!(check("node_options", ""), Err(Dropped::Blocked));
    }
}
