# Parameters: as published with filebench 1.5 (varmail.f). The text is ours.
# A mail server: 13 flowops a loop, 2 of them fsync.
set $dir=/
set $nfiles=1000
set $meandirwidth=1000000
set $filesize=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)
set $nthreads=16
set $iosize=1m
set $meanappendsize=16k
set $runtime=60

define fileset name=bigfileset,path=$dir,entries=$nfiles,dirwidth=$meandirwidth,size=$filesize,prealloc=80

define process name=mailserver,instances=1 {
  thread name=mailer,memsize=10m,instances=$nthreads {
    flowop deletefile name=drop,filesetname=bigfileset
    flowop createfile name=receive,filesetname=bigfileset,fd=1
    flowop appendfilerand name=receive-append,iosize=$meanappendsize,fd=1
    flowop fsync name=receive-fsync,fd=1
    flowop closefile name=receive-close,fd=1
    flowop openfile name=answer,filesetname=bigfileset,fd=1
    flowop readwholefile name=answer-read,iosize=$iosize,fd=1
    flowop appendfilerand name=answer-append,iosize=$meanappendsize,fd=1
    flowop fsync name=answer-fsync,fd=1
    flowop closefile name=answer-close,fd=1
    flowop openfile name=look,filesetname=bigfileset,fd=1
    flowop readwholefile name=look-read,iosize=$iosize,fd=1
    flowop closefile name=look-close,fd=1
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run $runtime
