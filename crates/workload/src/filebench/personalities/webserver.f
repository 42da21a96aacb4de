# Parameters: as published with filebench 1.5 (webserver.f). The text is ours.
# A web server: ten files read, a log appended to.
set $dir=/
set $nfiles=1000
set $meandirwidth=20
set $filesize=cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5)
set $nthreads=100
set $iosize=1m
set $meanappendsize=16k
set $runtime=60

define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100,readonly
define fileset name=logfiles,path=$dir,size=$filesize,entries=1,dirwidth=$meandirwidth,prealloc

define process name=server,instances=1 {
  thread name=worker,memsize=10m,instances=$nthreads {
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop readwholefile name=read1,fd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
    flowop openfile name=open2,filesetname=bigfileset,fd=1
    flowop readwholefile name=read2,fd=1,iosize=$iosize
    flowop closefile name=close2,fd=1
    flowop openfile name=open3,filesetname=bigfileset,fd=1
    flowop readwholefile name=read3,fd=1,iosize=$iosize
    flowop closefile name=close3,fd=1
    flowop openfile name=open4,filesetname=bigfileset,fd=1
    flowop readwholefile name=read4,fd=1,iosize=$iosize
    flowop closefile name=close4,fd=1
    flowop openfile name=open5,filesetname=bigfileset,fd=1
    flowop readwholefile name=read5,fd=1,iosize=$iosize
    flowop closefile name=close5,fd=1
    flowop openfile name=open6,filesetname=bigfileset,fd=1
    flowop readwholefile name=read6,fd=1,iosize=$iosize
    flowop closefile name=close6,fd=1
    flowop openfile name=open7,filesetname=bigfileset,fd=1
    flowop readwholefile name=read7,fd=1,iosize=$iosize
    flowop closefile name=close7,fd=1
    flowop openfile name=open8,filesetname=bigfileset,fd=1
    flowop readwholefile name=read8,fd=1,iosize=$iosize
    flowop closefile name=close8,fd=1
    flowop openfile name=open9,filesetname=bigfileset,fd=1
    flowop readwholefile name=read9,fd=1,iosize=$iosize
    flowop closefile name=close9,fd=1
    flowop openfile name=open10,filesetname=bigfileset,fd=1
    flowop readwholefile name=read10,fd=1,iosize=$iosize
    flowop closefile name=close10,fd=1
    flowop appendfilerand name=log,filesetname=logfiles,iosize=$meanappendsize,fd=2
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run $runtime
