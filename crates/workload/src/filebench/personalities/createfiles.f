# Parameters: as published with filebench 1.5 (createfiles.f). The text is ours.
# Makes files until there are no more to make.
set $dir=/
set $nfiles=50000
set $meandirwidth=100
set $filesize=16k
set $iosize=1m
set $nthreads=16

set mode quit firstdone

define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth

define process name=maker,instances=1 {
  thread name=maker,memsize=10m,instances=$nthreads {
    flowop createfile name=new,filesetname=bigfileset,fd=1
    flowop writewholefile name=new-write,fd=1,iosize=$iosize
    flowop closefile name=new-close,fd=1
  }
}

run
