use super::super::{Command, Num, PERSONALITIES, QuitMode, built_in, fileserver, varmail};
use super::*;

fn read(text: &str) -> WmlFile {
    parse("dir/x.f", text.as_bytes(), &BTreeMap::new())
}

/// A thread of these flowops, on a fileset `s`.
fn with(flowops: &str) -> String {
    format!(
        "define fileset name=s,path=/tmp,entries=10,dirwidth=20,size=4k,prealloc=100\n\
         define process name=p {{ thread name=t,memsize=1m {{\n{flowops}\n}} }}\nrun 1\n"
    )
}

#[test]
fn what_comes_with_it_is_understood_and_keeps_its_variables() {
    for p in PERSONALITIES {
        let file = built_in(p.name, &BTreeMap::new()).expect("there");
        assert!(file.diagnostics.is_empty(), "{}:\n{}", p.name, file.rendered());
        assert_eq!(file.personality.name, p.name);
        assert!(file.variables.contains(&"dir".to_owned()), "{}", p.name);
        assert!(p.text.starts_with("# Parameters: as published with filebench 1.5"), "{}", p.name);
        // Other values are taken, and other names are not.
        let given = |k: &str, v: &str| BTreeMap::from([(k.to_owned(), v.to_owned())]);
        let moved = built_in(p.name, &given("dir", "/mnt/x")).expect("there");
        assert!(moved.personality.filesets.iter().all(|s| s.path == "/mnt/x"));
        assert!(built_in(p.name, &given("nothing", "1")).expect("there").has_errors());
    }
}

#[test]
fn varmail_and_fileserver_are_the_published_ones() {
    let p = varmail(16);
    assert_eq!((p.threads(), p.filesets[0].entries), (16, Num::Fixed(1000)));
    assert_eq!(
        (p.filesets[0].dir_width, p.filesets[0].prealloc_percent),
        (Num::Fixed(1_000_000), 80)
    );
    let names = |p: &Personality| -> Vec<&str> {
        kinds(&p.processes[0].threads[0].steps).into_iter().map(Kind::name).collect()
    };
    assert_eq!(
        names(&p).join(" "),
        "deletefile createfile appendfilerand fsync closefile openfile readwholefile \
         appendfilerand fsync closefile openfile readwholefile closefile"
    );
    assert_eq!(p.commands, [Command::Create, Command::Sync, Command::Run(60)]);
    let nodel = super::super::varmail_nodel(3);
    assert_eq!((nodel.threads(), names(&nodel).len()), (3, 12));
    let p = fileserver(50, 10_000);
    assert_eq!((p.threads(), p.filesets[0].entries), (50, Num::Fixed(10_000)));
    assert_eq!(names(&p).len(), 11);
}

#[test]
fn mistakes_are_shown_with_their_place_and_a_way_out() {
    let cases: &[(&str, &str, &str)] = &[
        ("sett $x=1", "`sett` is not a command", "`set`"),
        (
            "define fileset name=a,entires=5",
            "`entires` is not an attribute of fileset",
            "`entries`",
        ),
        ("define process name=p,memsize=1m { }", "not an attribute of process", "thread"),
        ("define fileset name=a,path=/tmp,entries=$n,dirwidth=9", "`$n` is not set", "set $n="),
        ("set $x= }", "a value is needed", ""),
        ("set mode quit never", "`never` is not a mode", "firstdone"),
        ("stats clear", "older filebench versions", "leave it out"),
        ("set $s=cvar(type=cvar-gama,parameters=mean:1)", "not a type of `cvar`", "cvar-gamma"),
        (
            "set $s=cvar(type=cvar-gamma,parameters=mean:x)",
            "`mean:x` is not a parameter",
            "NAME:NUMBER",
        ),
        ("set $s=cvar(type=cvar-uniform,parameters=lower:5;upper:1)", "no such parameters", ""),
        ("set $s=randvar(type=tabular,randtable={{50,1,2},{40,3,4}})", "of 90 percent", ""),
        ("enable multi master=a", "several clients", ""),
        (
            "define file name=f,path=/tmp,cashed=true",
            "`cashed` is not an attribute of file",
            "`cached`",
        ),
        ("define fileset name=a,path=/tmp,dirwidth=9", "this fileset has no files", ""),
        ("define fileset name=a,path=/../x,dirwidth=9,entries=1", "without `..`", ""),
        ("define fileset name=list", "`list` is a word of WML", "quotes"),
        ("run @", "not a part of WML", ""),
    ];
    for (text, message, help) in cases {
        let file = read(text);
        assert!(file.has_errors(), "{text}");
        let rendered = file.rendered();
        assert!(rendered.contains(message) && rendered.contains(help), "{text}:\n{rendered}");
        assert!(rendered.contains("--> dir/x.f:1:"), "{text}:\n{rendered}");
    }
    let flowops: &[(&str, &str)] = &[
        ("flowop red name=a", "`red` is not a type of flowop"),
        ("flowop read name=a,filename=s", "needs an iosize"),
        ("flowop read name=a,filename=q,iosize=1k", "`q` is not a fileset"),
        ("flowop read name=a,filename=s,iosize=2m", "memsize is below"),
        ("flowop read name=a,filename=s,iosize=8k,random", "the file is smaller"),
        ("flowop aiowrite name=a,filename=s,iosize=1k", "needs `random`"),
        ("flowop openfile name=a,fd=1", "needs a fileset"),
        ("flowop openfile name=a,filesetname=s,fd=200", "no descriptor 200"),
        ("flowop openfile name=a,filesetname=s,fd=1", "opens a file while one is open"),
        ("flowop closefile name=a,fd=1", "closes a file that is not open"),
        ("flowop fsync name=a", "syncs a file that is not open"),
        ("flowop appendfilerand name=a,iosize=4k,fd=1", "has no open file and no fileset"),
        ("flowop opslimit name=a,target=b", "`b` is not a flowop of this thread"),
        ("flowop wakeup name=a", "needs a target"),
        ("flowop statfile name=a,filesetname=s,$x=5", "`$x` stands where"),
        ("flowop statfile filesetname=s", "`name` is needed"),
        ("flowop statfile name=a,filesetname=s,random=maybe", "a switch"),
    ];
    for (flowop, message) in flowops {
        let file = read(&with(flowop));
        let rendered = file.rendered();
        assert!(file.has_errors() && rendered.contains(message), "{flowop}:\n{rendered}");
        assert!(rendered.contains("x.f:3:"), "{flowop}:\n{rendered}");
    }
}

#[test]
fn the_published_mail_server_without_its_first_two_lines_ends_as_in_filebench() {
    let published = built_in("varmail", &BTreeMap::new()).expect("there");
    assert!(!published.has_errors());
    let text = PERSONALITIES[0].text;
    let without: String = text
        .lines()
        .filter(|l| !l.contains("deletefile") && !l.contains("createfile"))
        .map(|l| format!("{l}\n"))
        .collect();
    let file = read(&without);
    assert!(file.rendered().contains("has no open file and no fileset"), "{}", file.rendered());
    // With its fileset named, it opens by itself.
    let named = without.replacen("fd=1", "fd=1,filesetname=bigfileset", 1);
    assert!(!read(&named).has_errors(), "{}", read(&named).rendered());
}

#[test]
fn more_than_one_mistake_is_told() {
    assert!(read("set $x=\nset $y=2").rendered().contains("needed before this"));
    let file = read("sett $x=1\nrun 5\ndefine nothing\nset $y=1\necho \"a\"\n# end\nset 5\n");
    assert_eq!(file.diagnostics.len(), 3, "{}", file.rendered());
}

#[test]
fn what_runs_otherwise_than_in_filebench_is_a_warning() {
    let text = with("flowop statfile name=a,filesetname=s");
    assert!(read(&text).diagnostics.is_empty());
    let no_run = read(text.trim_end().trim_end_matches("run 1"));
    assert!(!no_run.has_errors() && no_run.rendered().contains("no `run` command"));
    assert_eq!(no_run.personality.commands, [Command::Run(0)]);
    let system = read(&format!("system \"rm x\"\nsystem \"sync\"\n{text}echo \"late\""));
    assert_eq!(system.diagnostics.len(), 2, "{}", system.rendered());
    assert_eq!(system.personality.commands, [Command::Sync, Command::Run(1)]);
    assert!(system.echoes.is_empty(), "behind run");
}

#[test]
fn variables_are_filled_in_and_given_ones_stay() {
    let text = "set $n=5\nset $n=7\nset $size=cvar(type=cvar-gamma,parameters=mean:10;gamma:1.5)\n\
                set $r=randvar(type=uniform,min=10,mean=20,round=5)\nset $on=true\n\
                set mode quit firstdone\neventgen rate=$n\n\
                define fileset name=s,path=/tmp,entries=$n,dirwidth=$r,size=$size,prealloc,\n\
                paralloc=$on\n\
                define process name=p,instances=2 { thread name=t,instances=$n {\n\
                flowop read name=a,filename=s,iosize=$r,opennext,workingset=1m } }\n\
                psrun -5 $n";
    let p = read(text).personality;
    assert_eq!((p.filesets[0].entries, p.filesets[0].prealloc_percent), (Num::Fixed(7), 100));
    assert!(p.filesets[0].paralloc);
    assert_eq!((p.filesets[0].size, p.filesets[0].dir_width), (Num::Drawn(0), Num::Drawn(1)));
    assert_eq!((p.mode, p.event_rate, p.threads()), (QuitMode::FirstDone, Num::Fixed(7), 14));
    assert_eq!(p.commands, [Command::Run(7)]);
    let given = [("n", "2k"), ("size", "randvar(type=gamma,mean=4k)"), ("on", "false")];
    let given = given.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let file = parse("x", text.as_bytes(), &given);
    assert!(!file.has_errors(), "{}", file.rendered());
    assert_eq!(file.personality.filesets[0].entries, Num::Fixed(2048));
    assert!(!file.personality.filesets[0].paralloc);
    let bad = [("n".to_owned(), "1 run 5".to_owned())].into();
    assert!(parse("x", text.as_bytes(), &bad).has_errors());
}

#[test]
fn flowops_of_its_own_are_what_they_consist_of() {
    let text = "define fileset name=s,path=/tmp,entries=10,dirwidth=20,size=4k\n\
        define flowop name=inner,$n,$set=s {\n\
        flowop write name=w,filename=$set,iosize=1k,iters=$n,fd=1 }\n\
        define flowop name=outer,iters=3 { flowop inner name=i,$n=5\n\
        flowop closefile name=c,fd=1 }\n\
        define process name=p { thread name=t {\n\
        flowop outer name=x flowop outer name=y,iters=2 } }\nrun 1";
    let file = read(text);
    assert!(!file.has_errors(), "{}", file.rendered());
    let steps = &file.personality.processes[0].threads[0].steps;
    assert_eq!(kinds(steps), [Kind::Write, Kind::CloseFile, Kind::Write, Kind::CloseFile]);
    let Step::Repeat(Num::Fixed(3), inner) = &steps[0] else { panic!("{steps:?}") };
    let Step::Repeat(Num::Fixed(1), inner) = &inner[0] else { panic!("{inner:?}") };
    let Step::Do(f) = &inner[0] else { panic!("{inner:?}") };
    assert_eq!((&*f.name, f.iters, f.fileset), ("x.i.w", Num::Fixed(5), Some(0)));
    // One that would use itself.
    let itself = text.replace("flowop write name=w", "flowop inner name=w");
    assert!(read(&itself).has_errors());
    // Many of many.
    let mut many = "define flowop name=a0 { flowop print name=p }\n".to_owned();
    for i in 0..40 {
        let j = i + 1;
        many += &format!("define flowop name=a{j} {{ flowop a{i} name=x flowop a{i} name=y }}\n");
    }
    many += "define process name=p { thread name=t { flowop a40 name=z } }\nrun 1";
    assert!(read(&many).rendered().contains("too many flowops"));
}

#[test]
fn an_attribute_that_is_refused_is_an_error_and_every_word_is_noted() {
    let file = read(&with("flowop statfile name=a,filesetname=s"));
    let used: Vec<&str> = file.used.iter().map(|u| u.word.name).collect();
    assert_eq!(used.len(), 6 + 1 + 2 + 3 + 1, "{used:?}");
    assert!(used.contains(&"filename") && used.contains(&"statfile"));
}
