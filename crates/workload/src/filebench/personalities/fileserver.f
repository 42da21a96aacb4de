# Parameters: as published with filebench 1.5 (fileserver.f). The text is ours.
# A file server: 11 flowops a loop, nothing synced.
set $dir=/
set $nfiles=10000
set $meandirwidth=20
set $filesize=cvar(type=cvar-gamma,parameters=mean:131072;gamma:1.5)
set $nthreads=50
set $iosize=1m
set $meanappendsize=16k
set $runtime=60

define fileset name=bigfileset,path=$dir,entries=$nfiles,dirwidth=$meandirwidth,size=$filesize,prealloc=80

define process name=server,instances=1 {
  thread name=worker,memsize=10m,instances=$nthreads {
    flowop createfile name=new,filesetname=bigfileset,fd=1
    flowop writewholefile name=new-write,srcfd=1,fd=1,iosize=$iosize
    flowop closefile name=new-close,fd=1
    flowop openfile name=longer,filesetname=bigfileset,fd=1
    flowop appendfilerand name=longer-append,iosize=$meanappendsize,fd=1
    flowop closefile name=longer-close,fd=1
    flowop openfile name=whole,filesetname=bigfileset,fd=1
    flowop readwholefile name=whole-read,iosize=$iosize,fd=1
    flowop closefile name=whole-close,fd=1
    flowop deletefile name=drop,filesetname=bigfileset
    flowop statfile name=look,filesetname=bigfileset
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run $runtime
